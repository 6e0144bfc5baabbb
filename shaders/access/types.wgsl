// The three names of a tensor: its coordinates, one element, one unit (several elements when packed).
{{ name_type(name ~ "_at", "array<u32, %d>" % rank) }}
alias {{ name }}_s = {{ scalar }};
alias {{ name }}_t = {{ unit }};
