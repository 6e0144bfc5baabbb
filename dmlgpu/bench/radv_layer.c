/* A Vulkan layer that lets wgpu open RADV, Mesa's driver for AMD GPUs, on a machine without one.
 *
 * With RADV_FORCE_FAMILY set, RADV offers a null device, which compiles for any family of GPUs and does nothing else.
 * wgpu cannot open it: the null device has no timeline semaphores, no memory, and no command buffers. This layer hides
 * timeline semaphores (wgpu uses fences instead), reports one type of memory, and replaces all commands, submissions
 * and waits by functions that do nothing. Buffers hold nothing; only the results of compilation mean something.
 *
 * dmlgpu/bench/radv.py builds and enables it. It serves one instance and one device. The parts of Vulkan's interface
 * that it uses are declared here, so that it compiles without Vulkan's headers and without those of the C library.
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *handle;
typedef void (*function)(void);
typedef function (*proc_address)(handle owner, const char *name);

enum {
    LOADER_INSTANCE_CREATE_INFO = 47,
    LOADER_DEVICE_CREATE_INFO = 48,
    VULKAN_1_2_FEATURES = 51,
    TIMELINE_SEMAPHORE_FEATURES = 1000207000,
    MEMORY_BUDGET_PROPERTIES = 1000237000,
    TIMELINE_SEMAPHORE_OF_1_2 = 37, /* its index among the features of VkPhysicalDeviceVulkan12Features */
    LINK_INFO = 0,
    DEVICE_LOCAL = 1,
    HOST_VISIBLE_AND_COHERENT = 2 | 4,
};

#define HEAP_SIZE (16ull << 30)

/* Every structure of Vulkan that can be extended begins like this. */
struct chained { u32 type; struct chained *next; };
struct features { struct chained head; u32 values[64]; };

struct instance_link { struct instance_link *next; proc_address instance_proc, physical_device_proc; };
struct device_link { struct device_link *next; proc_address instance_proc, device_proc; };
struct loader_info { struct chained head; u32 kind; void *link; };

struct memory {
    u32 type_count;
    struct { u32 flags, heap; } types[32];
    u32 heap_count;
    struct { u64 size; u32 flags; } heaps[16];
};
struct memory2 { struct chained head; struct memory memory; };
struct memory_budget { struct chained head; u64 budget[16], usage[16]; };

struct requirements { u64 size, alignment; u32 types; };
struct requirements2 { struct chained head; struct requirements requirements; };

struct negotiation {
    u32 type;
    void *next;
    u32 version;
    proc_address instance_proc, device_proc, physical_device_proc;
};

/* What comes below this layer. */
static handle instance;
static proc_address instance_proc, device_proc;
static void (*get_features_below)(handle, void *), (*get_memory2_below)(handle, void *);

static int equal(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static struct loader_info *link_of(struct chained *create_info, u32 type) {
    for (struct chained *item = create_info; item; item = item->next)
        if (item->type == type && ((struct loader_info *)item)->kind == LINK_INFO) return (struct loader_info *)item;
    return 0;
}

static int create_instance(struct chained *create_info, void *allocator, handle *created) {
    struct loader_info *info = link_of(create_info, LOADER_INSTANCE_CREATE_INFO);
    struct instance_link *link = info->link;
    info->link = link->next;
    int (*create)(void *, void *, handle *) = (void *)link->instance_proc(0, "vkCreateInstance");
    int result = create(create_info, allocator, created);
    if (result != 0) return result;
    instance = *created, instance_proc = link->instance_proc;
    /* Now, because from now on the loader answers with the functions of this layer. */
    get_features_below = (void *)instance_proc(instance, "vkGetPhysicalDeviceFeatures2");
    get_memory2_below = (void *)instance_proc(instance, "vkGetPhysicalDeviceMemoryProperties2");
    return result;
}

static int create_device(handle physical_device, struct chained *create_info, void *allocator, handle *created) {
    struct loader_info *info = link_of(create_info, LOADER_DEVICE_CREATE_INFO);
    struct device_link *link = info->link;
    info->link = link->next;
    device_proc = link->device_proc;
    int (*create)(handle, void *, void *, handle *) = (void *)link->instance_proc(instance, "vkCreateDevice");
    return create(physical_device, create_info, allocator, created);
}

static void get_features(handle physical_device, struct features *features) {
    get_features_below(physical_device, features);
    for (struct chained *item = features->head.next; item; item = item->next) {
        if (item->type == VULKAN_1_2_FEATURES) ((struct features *)item)->values[TIMELINE_SEMAPHORE_OF_1_2] = 0;
        if (item->type == TIMELINE_SEMAPHORE_FEATURES) ((struct features *)item)->values[0] = 0;
    }
}

static void get_memory(handle physical_device, struct memory *memory) {
    memory->type_count = memory->heap_count = 1;
    memory->types[0].flags = DEVICE_LOCAL | HOST_VISIBLE_AND_COHERENT;
    memory->types[0].heap = 0;
    memory->heaps[0].size = HEAP_SIZE;
    memory->heaps[0].flags = DEVICE_LOCAL;
}

static void get_memory2(handle physical_device, struct memory2 *memory) {
    get_memory2_below(physical_device, memory);
    get_memory(physical_device, &memory->memory);
    for (struct chained *item = memory->head.next; item; item = item->next)
        if (item->type == MEMORY_BUDGET_PROPERTIES) ((struct memory_budget *)item)->budget[0] = HEAP_SIZE;
}

static void get_requirements(handle device, u64 buffer, struct requirements *requirements) {
    void (*get)(handle, u64, void *) = (void *)device_proc(device, "vkGetBufferMemoryRequirements");
    get(device, buffer, requirements);
    requirements->types = 1;
}

static void get_requirements2(handle device, void *buffer_info, struct requirements2 *requirements) {
    void (*get)(handle, void *, void *) = (void *)device_proc(device, "vkGetBufferMemoryRequirements2");
    get(device, buffer_info, requirements);
    requirements->requirements.types = 1;
}

static int succeed(void) { return 0; }

static function get_instance_proc(handle owner, const char *name), get_device_proc(handle owner, const char *name);

static const struct { const char *name; void *replacement; } replaced[] = {
    {"vkGetInstanceProcAddr", get_instance_proc},
    {"vkGetDeviceProcAddr", get_device_proc},
    {"vkCreateInstance", create_instance},
    {"vkCreateDevice", create_device},
    {"vkGetPhysicalDeviceFeatures2", get_features},
    {"vkGetPhysicalDeviceFeatures2KHR", get_features},
    {"vkGetPhysicalDeviceMemoryProperties", get_memory},
    {"vkGetPhysicalDeviceMemoryProperties2", get_memory2},
    {"vkGetPhysicalDeviceMemoryProperties2KHR", get_memory2},
    {"vkGetBufferMemoryRequirements", get_requirements},
    {"vkGetBufferMemoryRequirements2", get_requirements2},
    {"vkGetBufferMemoryRequirements2KHR", get_requirements2},
    {"vkBeginCommandBuffer", succeed},
    {"vkEndCommandBuffer", succeed},
    {"vkQueueSubmit", succeed},
    {"vkQueueWaitIdle", succeed},
    {"vkDeviceWaitIdle", succeed},
    {"vkGetFenceStatus", succeed},
    {"vkWaitForFences", succeed},
};

static function replacement_of(const char *name) {
    for (unsigned i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (equal(name, replaced[i].name)) return (function)replaced[i].replacement;
    return 0;
}

static int is_command(const char *name) {
    return name[0] == 'v' && name[1] == 'k' && name[2] == 'C' && name[3] == 'm' && name[4] == 'd';
}

static function get_device_proc(handle device, const char *name) {
    function found = is_command(name) ? (function)succeed : replacement_of(name);
    return found ? found : device_proc(device, name);
}

static function get_instance_proc(handle owner, const char *name) {
    function found = replacement_of(name);
    return found ? found : instance_proc ? instance_proc(owner, name) : 0;
}

__attribute__((visibility("default"))) int vkNegotiateLoaderLayerInterfaceVersion(struct negotiation *negotiation) {
    negotiation->version = 2;
    negotiation->instance_proc = get_instance_proc;
    negotiation->device_proc = get_device_proc;
    negotiation->physical_device_proc = 0;
    return 0;
}
