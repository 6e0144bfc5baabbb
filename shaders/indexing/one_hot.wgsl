// ONE_HOT: output = on where the line's index names the place along the axis, else off
fn apply(place: place_s, found: found_s, on: on_s, off: off_s) -> output_s {
    return {{ place.equals(found).select(on, off) }};
}
