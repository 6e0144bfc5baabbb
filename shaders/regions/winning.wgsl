// Where the sample lies that is the maximum, by its numbers along x and y.
fn has_winner(winner: vec2<u32>) -> bool {
    return winner.x != 0xffffffffu;
}
# for axis in axes
fn winning_{{ axis.name }}(extent: Extent, output: u32, winner: vec2<u32>) -> Place {
    return place_{{ axis.name }}(coordinate_{{ axis.name }}(extent, output, winner.{{ axis.name }}));
}
# endfor
