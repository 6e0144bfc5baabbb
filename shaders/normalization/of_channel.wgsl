// One of {{ channels }} numbers, by an element's channel.
fn element(at: output_at) -> output_t {
    # for channel in range(1, channels)
    if (at[1] == {{ channel }}u) { return channel{{ channel }}_load(at); }
    # endfor
    return channel0_load(at);
}
