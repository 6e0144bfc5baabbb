"""`vmap`: functions of one element that compute a whole batch. A rule per operator adds the axis of the batch."""
