"""Implementation of scripts/clients: the rows by client, their comparison, child processes and the page."""
