// The walk over work items: {{ launch.items_per_invocation }} per invocation, adjacent ones{{ " by %d invocations" % launch.lockstep if launch.lockstep and not is_part }}.
{% import "schedules/invocation" as invocation with context %}
# set step = launch.lockstep if launch.lockstep and not is_part else 1
# set items = launch.items_per_invocation
{% if is_part %}
fn run(number: u32) {
{% else %}
@compute @workgroup_size({{ launch.workgroup }})
fn main({{ invocation.parameters() }}) {
    load_sizes();
{{ invocation.numbered() }}
{% endif %}
    # if step > 1 and items > 1
    let first = number / {{ step }}u * {{ step * items }}u + number % {{ step }}u;
    # else
    let first = number * {{ items }}u;
    # endif
    # if launch.in_loop
    let last = min(first + {{ step * items }}u, {{ launch.total }}u) + opaque_zero(); // the driver does not unroll
    for (var item = first; item < last; item += {{ step }}u) { handle(item); }
    # else
    # for item in range(items)
    if (first + {{ item * step }}u >= {{ launch.total }}u) { return; }
    handle(first + {{ item * step }}u);
    # endfor
    # endif
}
