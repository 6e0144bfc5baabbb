// The weighted sums of {{ parts }} parts of the keys, each less its top, as one: scaled down to the largest top and divided by
// the mass of all weights. A row of a part ends with its top and its mass.
fn element(at: output_at) -> output_t {
    var place: partials_at;
    # for dimension in range(output.rank - 1)
    place[{{ dimension + 1 }}] = at[{{ dimension }}];
    # endfor
    var top = -3.4028234e38f;
    for (var each = 0u; each < {{ parts }}u; each++) {
        place[0] = each;
        place[{{ output.rank }}] = {{ top }}u;
        top = max(top, partials_load(place));
    }
    var sum = 0.0;
    var mass = 0.0;
    for (var each = 0u; each < {{ parts }}u; each++) {
        place[0] = each;
        place[{{ output.rank }}] = {{ top }}u;
        let scale = exp_f32(partials_load(place) - top);
        place[{{ output.rank }}] = {{ top + 1 }}u;
        mass += scale * partials_load(place);
        place[{{ output.rank }}] = at[{{ output.rank - 1 }}];
        sum += scale * partials_load(place);
    }
    return sum / mass;
}
