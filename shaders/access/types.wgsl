// The three names of a tensor: its coordinates, one element, one unit (several elements when packed).
alias {{ name }}_at = array<u32, {{ rank }}>;
alias {{ name }}_s = {{ scalar }};
alias {{ name }}_t = {{ unit }};
