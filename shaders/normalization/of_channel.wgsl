// One of {{ channels }} numbers, by an element's channel.
fn element(at: output_at) -> output_t {
    # for channel in range(1, channels)
    if (at[1] == {{ channel }}u) { return {{ resolved("channel%d_load" % channel) }}(at); }
    # endfor
    return channel0_load(at);
}
