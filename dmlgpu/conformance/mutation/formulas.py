"""Nearly correct formulas in place of the documented ones: typical misreadings.

Each differs from the correct formula at few inputs: ties, exact multiples, borders. Its pattern is the line of a
shader, or the part of it, with the formula.
"""

from __future__ import annotations

FORMULAS = (
    # ---- rounding
    (
        "half_away_for_half_even",
        r"\bbitcast<i32>\(number \+ 12582912\.0\) - 0x4b400000",
        "i32(sign(number) * floor(abs(number) + 0.5))",
    ),
    ("half_even_for_half_away", r"(?<!fn )\bround_half_away_f32\(", "round_half_even_f32("),
    ("half_up_for_half_even", r"\bbitcast<i32>\(number \+ 12582912\.0\) - 0x4b400000", "i32(floor(number + 0.5))"),
    ("truncated_for_rounded", r"(?<!fn )\bround_half_away_f32\(", "truncate_f32("),
    ("truncated_for_half_even", r"\bbitcast<i32>\(number \+ 12582912\.0\) - 0x4b400000", "i32(number)"),
    (
        "other_rounding_mode",
        r"\.call\(rounding\)",
        '.call({"round_half_even": "round_half_away"}.get(rounding, "floor"))',
    ),
    (
        "zero_point_before_rounding",
        r"\b(bitcast<i32>\(number) (\+ 12582912\.0\) - 0x4b400000) \+ zero_point",
        r"\1 + f32(zero_point) \2",
    ),
    (
        "zero_point_after_clamping",
        r"\bclamp\((bitcast<i32>\(.+\) - 0x4b400000) \+ zero_point, low, high\)",
        r"(clamp(\1, low, high) + zero_point)",
    ),
    ("not_clamped", r"\bclamp\((bitcast<i32>\(.+ \+ zero_point), low, high\)", r"(\1)"),
    ("floor_for_ceil", r"(?<!fn )\bceil_f32\(", "floor_f32("),
    ("ceil_for_floor", r'\.call\("floor"\)', '.call("ceil")'),
    ("truncated_for_ceil", r'\.call\("ceil"\)', '.call("truncate")'),
    ("other_nearest", r'"ceil" if increasing else "floor"', '"floor" if increasing else "ceil"'),
    ("half_up_for_half_down", r"\bceil_f32\(within - 0\.5\)", "floor_f32(within + 0.5)"),
    ("rounded_for_truncated", r"\b(return (?:u32\()?)i32\(x\)", r"\1i32(round(x))"),
    ("odd_ties_up", r"\(rest == middle && \([^()]+\) == 1u\)", "rest == middle"),
    # ---- division
    (
        "truncated_for_floored",
        r"\bselect\(remainder, (?:remainder \+ b|add_words\(remainder, b\)), .+\);",
        "remainder;",
    ),
    ("exact_multiples_moved", r" && (?:remainder != (?:0|0li)|\(remainder\.x \| remainder\.y\) != 0u)(?=\)?;)", ""),
    ("truncated_modulus_for_floored", r"\.floor_remainder\(", ".remainder("),
    ("floored_modulus_for_truncated", r"\.remainder\(", ".floor_remainder("),
    ("shifted_for_divided", r"\bquotient_i32\(a \+ b, 2\)", "((a + b) >> 1u)"),
    # ---- equal keys
    ("last_for_first", r'\{\{ ">" if decreasing else "<" \}\}', '{{ "<" if decreasing else ">" }}'),
    ("last_for_first_sorted", r"& \(a\.([yz]) < b\.\1\)", r"& (a.\1 > b.\1)"),
    # ---- statistics
    ("unbiased_for_biased", r" / \{\{ count\|f32 \}\};", " / ({{ count|f32 }} - 1.0);"),
    ("unbiased_for_biased_moments", r"\bacc\.w / acc\.x\b", "acc.w / (acc.x - 1.0)"),
    ("epsilon_outside_root", r"\bsqrt\((\w+) \+ (\{\{ epsilon \}\})\)", r"(sqrt(\1) + \2)"),
    ("epsilon_inside_root", r"\(sqrt\((\w+)\) \+ (\{\{ epsilon \}\})\)", r"sqrt(\1 + \2)"),
    ("epsilon_added_for_maximum", r"\bnorm\.maximum\((\w+)\)", r"(norm + \1)"),
    (
        "padding_counted",
        r"\blast_inside\{\{ loop\.index0 \}\}\(.+?\) \+ 1u - first_inside\{\{ loop\.index0 \}\}\(.+?\)",
        "{{ axis.size }}u",
    ),
    ("mirrored_window", r"\{\{ before \}\}u", "{{ after }}u"),
    ("uncorrected_bias", r"\* correction \*", "*"),
    # ---- borders and coordinates
    ("zero_left_out_of_range", r"\b(?:min|max)\(number, 0\.0\)", "number"),
    ("corners_for_centres", r" - bitcast<f32>\(\{\{ axis\.(?:in|out)put_offset_bits \}\}u\)", ""),
    ("uncounted_last_element", r"(u32\(max\(far - near, 0\)\)) \+ 1u", r"\1"),
    ("negative_unwrapped", r"\bselect\((select\(OUTSIDE, [\w.]+, from_start\)), size - distance, from_end\)", r"\1"),
    ("first_negative_outside", r"\bdistance <= size\b", "distance < size"),
    ("last_lane_kept", r"\bselect\(0u, 1u, time < ", "select(0u, 1u, time <= "),
    ("maximum_before_minimum", r"\.clipped\(min, max\)", ".maximum(min).minimum(max)"),
    ("clamped_for_outside", r"\bselect\(OUTSIDE, (word|words\.x), [^,]+ < size\);", r"min(\1, size - 1u);"),
    (
        "wrapped_for_clamped",
        r'"min\(low%d \+ 1u, %su\)" % \(loop\.index0, axis\.size - 1\)',
        '"(low%d + 1u) %% %su" % (loop.index0, axis.size)',
    ),
    ("one_step_more", r"\{\{ steps\|f32 \}\}", "({{ steps|f32 }} + 1.0)"),
    ("border_left_out", r"\bless_equal_f32\(((?:low|coordinate), (?:coordinate|high))\)", r"less_f32(\1)"),
    ("least_region_of_one", r"\blet size = far - near;", "let size = max(far - near, 1.0);"),
    (
        "extrapolated_for_clamped",
        r"\bclamp\((coordinate\{\{ loop\.index0 \}\}\(at\[\{\{ axis\.dimension \}\}\]\)), 0\.0, .+\);",
        r"\1;",
    ),
    (
        "reflected_once",
        r'\{\{ mod\("\(at\[" ~ dimension ~ "\] \+ " ~ \(-first % period\) ~ "u\)", period\) \}\}',
        "u32(abs(i32(at[{{ dimension }}]) - {{ first|i32 }}))",
    ),
    (
        "padding_as_zeros",
        r'\bselect\(output_s\(0xffffffffu\), (\{\{ use\("descending_" ~ input\.kind\) \}\})\(input\)',
        r"select(\1(input_s()), \1(input)",
    ),
    ("undilated", r" \* \{\{ axis\.dilation \}\}u", ""),
    ("unstrided", r" \* \{\{ axis\.stride \}\}u", ""),
    # ---- bends, scales and biases
    (
        "other_side_of_bend",
        r"\((input|x) > (0|alpha|threshold)\)\.select\((?=gradient|input, input\.constant|x -)",
        r"(\1 >= \2).select(",
    ),
    ("positive_zero", r"\(input > 0\)\.select\(input\.constant\(1\)", "(input >= 0).select(input.constant(1)"),
    ("bounds_let_through", r"\(input <= min\)\.either\(input >= max\)", "(input < min).either(input > max)"),
    ("unscaled_argument", r"\(input / alpha\)\.call\(", "input.call("),
    ("undivided_steepness", r"\bsoftplus_f32\(steep\) / \{\{ steepness \}\}", "softplus_f32(steep)"),
    ("scale_of_one_side", r"\bgamma \* (\(input > 0\)\.select\(input, )", r"\1gamma * "),
    (
        "tanh_for_erf",
        r"\bgelu_f32\(input\)",
        "0.5 * input * (1.0 + tanh_f32(0.7978846 * (input + 0.044715 * input * input * input)))",
    ),
    ("bias_before_scale", r"(\binput(?:\.to\(compute, portable=False\))?) \* scale \+ bias\b", r"(\1 + bias) * scale"),
    ("bias_before_scale_2d", r"\binput \* (\{\{ scale \}\}) \+ bias\b", r"(input + bias) * \1"),
    ("scale_of_both", r"\bproduct \* alpha \+ (c\.to\(compute\) \* beta)", r"(product + \1) * alpha"),
    (
        "zero_point_after_scale",
        r"\{\{ \(input\.to\(integer\) - zero_point\.to\(integer\)\)\.to\(compute\) \}\} \* scale",
        "({{ input.to(compute) }} * scale - {{ zero_point.to(compute) }})",
    ),
    ("sum_for_share", r"\{\{ share \}\} \* total", "total"),
    ("other_blend", r"\(1\.0 - share\) \* a \+ share \* b", "share * a + (1.0 - share) * b"),
    ("steps_from_zero", r"\blet steps = (\{\{ step\.to\(compute\) \}\});", r"let steps = \1 + 1.0;"),
    # ---- masks
    ("filter_for_sum", r"\{\{ score \+ masked \}\}", "{{ masked }}"),
    ("sum_for_filter", r"\bselect\(\{\{ masked \}\}, score", "select({{ score + masked }}, score"),
    ("key_behind_last_seen", r"\bkey < end_load", "key <= end_load"),
    ("first_key_hidden", r"\bkey >= start_load", "key > start_load"),
    ("own_key_hidden", r" \+ 1u, \{\{ keys \}\}u\)", ", {{ keys }}u)"),
    # ---- overflow, undefined behavior
    ("exponential_of_all", r"\bexp_bounded\(input - maximum\)", "exp_bounded(input)"),
    ("overflowing_mean", r"\bselect\(0\.5 \* sum, .+\);", "0.5 * sum;"),
    ("zero_for_no_quotient", r"\bselect\(a / max\(b, 1u\), 0xffffffffu, ", "select(a / max(b, 1u), 0u, "),
    (
        "cut_for_rotated_shift",
        r"\breturn a (<<|>>) \(count & 31u\);",
        r"return select(a \1 (count & 31u), 0u, count >= 32u);",
    ),
    ("power_of_minus_one_lost", r"!is_minus_one && ", ""),
    ("sign_kept", r"\bpow_f32\(size_of_f32\(input\)", "pow_f32(input"),
    # ---- truth
    ("bits_for_truths", r"\(a > 0\)\.both\(b > 0\)", "(a.bits_and(b) > 0)"),
    ("numbers_for_truths", r"\(a > 0\)\.equals\(b > 0\)", "a.equals(b)"),
    # ---- sums so far
    (
        "inclusive_for_exclusive",
        r"\{\{ scan\.finished\(lane\) \}\}",
        "finish(merge((*state)[{{ lane.state }}], {{ scan.lifted(lane) }}))",
    ),
)
"""Name, pattern and replacement of each."""
