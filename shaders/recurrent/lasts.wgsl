// RNN, LSTM, GRU: output = 1 where a step of a direction lies within the sequence, else 0. Backward ones count down from
// the last step of the longest possible sequence.
fn element(at: output_at) -> output_t {
    # if backward
    let time = {{ steps - 1 }}u - at[0];
    # else
    let time = at[0];
    # endif
    return select(0u, 1u, time < lengths_load(lengths_at(at[1])));
}
