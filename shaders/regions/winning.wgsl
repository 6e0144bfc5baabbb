// Position of the sample that is the maximum, from its indices along x and y.
fn has_winner(winner: vec2<u32>) -> bool {
    return winner.x != 0xffffffffu;
}
# for axis in axes
fn winning_{{ axis.name }}(extent: Extent, output: u32, winner: vec2<u32>) -> Place {
    return place_{{ axis.name }}(coordinate_{{ axis.name }}(extent, output, winner.{{ axis.name }}));
}
# endfor
