/* card_memory.c: the mirror of the card's memory (card.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "card_internal.h"

/* Buffers above BIG bytes go to the card and come back only where the host touches them. */
enum { BIG = 4 << 20, GUARD = 4096, ALIGN = 256, WAIT_SECONDS = 30 };
static const size_t arena_bytes = (size_t)24 << 30, least_bytes = (size_t)64 << 20;

typedef struct region {
    const char *name;
    size_t at, bytes;
    int flags;
    bool big, fresh; /* fresh: big, and the card has not given it its first contents */
} region;

typedef struct span {
    size_t at, bytes;
} span;

typedef struct pending_map { /* it needs the card's addresses, which are known when memory goes there */
    size_t at;
    emu_tensor_map map;
} pending_map;

enum { MAX_REGIONS = 256, MAX_MAPS = 600, MAX_SPANS = 4096 };
static struct {
    qn_cu_ptr memory;
    size_t held, kept;           /* bytes of `memory`, and those of them that have contents */
    unsigned char *arena, *sent; /* the mirror, and what of it went to the card */
    size_t used;
    region regions[MAX_REGIONS];
    int n_region;
    pending_map maps[MAX_MAPS];
    int n_map;
    span dirty[MAX_SPANS]; /* of big buffers: what the host has written since */
    int n_dirty;
    bool ahead, failed; /* ahead: launches since memory went there; failed: `why` was not told yet */
    emu_report why;
} mem;

static void *reserve(void)
{
    void *p =
        mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int card_memory_open(qn_err *err)
{
    mem.arena = reserve();
    mem.sent = reserve();
    return mem.arena && mem.sent ? 0 : qn_fail(err, "no address space for %zu bytes", arena_bytes);
}

void card_memory_close(void)
{
    if (mem.memory && !card_dev.lost) {
        card_dev.cuda.api.MemFree(mem.memory);
    }
    if (mem.arena && mem.sent) {
        munmap(mem.arena, arena_bytes);
        munmap(mem.sent, arena_bytes);
    }
    memset(&mem, 0, sizeof mem);
}

static region *region_of(const void *at, size_t bytes)
{
    const unsigned char *p = at;
    size_t offset = (size_t)(p - mem.arena);
    for (int i = mem.n_region - 1; p >= mem.arena && i >= 0; i--) {
        region *g = &mem.regions[i];
        if (offset >= g->at && offset - g->at <= g->bytes && bytes <= g->bytes - (offset - g->at)) {
            return g;
        }
    }
    return NULL;
}

/* The host writes there: of big buffers it goes to the card before the next launch. */
static void mark_dirty(size_t at, size_t bytes)
{
    span *last = mem.n_dirty > 0 ? &mem.dirty[mem.n_dirty - 1] : NULL;
    if (last && last->at + last->bytes == at) {
        last->bytes += bytes;
    } else if (mem.n_dirty < MAX_SPANS) {
        mem.dirty[mem.n_dirty++] = (span){at, bytes};
    } else {
        abort(); /* writes of a big buffer in thousands of places: none of the tests makes them */
    }
}

void *emu_alloc(const char *name, size_t bytes, int flags)
{
    emu_report r;
    if (emu_settle(&r)) { /* told by the next call that can */
        mem.failed = true;
        mem.why = r;
    }
    if (mem.n_region == MAX_REGIONS || bytes > arena_bytes / 2 ||
        mem.used + bytes + 2 * GUARD + ALIGN > arena_bytes) {
        return NULL;
    }
    const size_t at = mem.used + GUARD, end = (at + bytes + GUARD + ALIGN - 1) / ALIGN * ALIGN;
    const bool big = bytes > BIG;
    mem.regions[mem.n_region++] = (region){name, at, bytes, flags, big, big && !(flags & EMU_READ_ONLY)};
    memset(mem.arena + mem.used, 0xff, GUARD);
    memset(mem.arena + at + bytes, 0xff, end - at - bytes);
    if (big && flags & EMU_READ_ONLY) { /* the host fills it now */
        mark_dirty(at, bytes);
    } else if (!big) {
        memset(mem.arena + at, flags & EMU_UNWRITTEN ? 0xff : 0, bytes);
    }
    mem.used = end;
    return mem.arena + at;
}

void emu_freeze(void *start)
{
    emu_report r;
    region *g = region_of(start, 0);
    if (emu_settle(&r)) {
        mem.failed = true;
        mem.why = r;
    }
    if (g) {
        g->flags = EMU_READ_ONLY;
    }
}

void emu_reset(void)
{
    emu_report r;
    emu_settle(&r);
    mem.used = mem.kept = 0;
    mem.n_region = mem.n_map = mem.n_dirty = 0;
    mem.failed = false;
}

static int look_at(const void *p, size_t bytes, bool writes, emu_report *r)
{
    char text[200];
    if (emu_settle(r)) {
        return -1;
    }
    const region *g = region_of(p, bytes);
    const size_t at = (size_t)((const unsigned char *)p - mem.arena);
    if (!g) {
        snprintf(text, sizeof text, "the host looks at %zu bytes that lie in no buffer", bytes);
        return card_report(r, "bounds", text);
    }
    if (g->big && writes) {
        mark_dirty(at, bytes);
    } else if (g->big && at + bytes <= mem.kept && mem.n_dirty == 0 && bytes > 0) {
        qn_cu_result s = card_dev.cuda.api.MemcpyDtoH(mem.arena + at, mem.memory + at, bytes);
        return s ? card_driver_failed(s, "fetching", r) : 0;
    }
    return 0;
}

int emu_written(const void *p, size_t bytes, emu_report *r)
{
    return look_at(p, bytes, true, r);
}

int emu_readable(const void *p, size_t bytes, emu_report *r)
{
    return look_at(p, bytes, false, r);
}

int emu_all_written(const void *p, size_t bytes, emu_report *r)
{
    (void)p;
    (void)bytes;
    return emu_settle(r);
}

int emu_write_map(void *to, const emu_tensor_map *map, emu_report *r)
{
    if (look_at(to, QN_CUDA_MAP_BYTES, true, r)) {
        return -1;
    }
    if (mem.n_map == MAX_MAPS) {
        return card_report(r, "card", "too many tensor maps");
    }
    mem.maps[mem.n_map++] = (pending_map){(size_t)((unsigned char *)to - mem.arena), *map};
    return 0;
}

/* What differs from what went to the card; of big buffers that is not kept. */
size_t emu_first_stored(const void *p, size_t bytes)
{
    const unsigned char *now = p, *sent = mem.sent + (now - mem.arena);
    const region *g = region_of(p, bytes);
    size_t i = g && g->big ? bytes : 0;
    while (i < bytes && now[i] == sent[i]) {
        i++;
    }
    return i;
}

uint64_t card_there(uint64_t value)
{
    const uint64_t first = (uint64_t)(uintptr_t)mem.arena;
    return value >= first && value <= first + mem.used ? mem.memory + (value - first) : value;
}

static int encode_maps(emu_report *r)
{
    static const unsigned int steps[4] = {1, 1, 1, 1};
    for (int i = 0; i < mem.n_map; i++) {
        const emu_tensor_map *m = &mem.maps[i].map;
        qn_cu_tensor_map map;
        if (!card_dev.cuda.api.TensorMapEncodeTiled) {
            return card_report(r, "card", "the driver has no tensor maps");
        }
        qn_cu_result s = card_dev.cuda.api.TensorMapEncodeTiled(
            &map, QN_CU_TENSOR_F16, 4, (void *)(uintptr_t)card_there(m->base), m->dims, m->strides, m->box,
            steps, QN_CU_INTERLEAVE_NONE, QN_CU_SWIZZLE_128B, QN_CU_L2_PROMOTION_256B, QN_CU_OOB_ZERO);
        if (s) {
            return card_driver_failed(s, "describing a tensor", r);
        }
        memcpy(mem.arena + mem.maps[i].at, &map, sizeof map);
    }
    return 0;
}

/* Calls fn for all that lies between big buffers; 0, or what fn has returned. */
static qn_cu_result each_stretch(qn_cu_result (*fn)(size_t at, size_t bytes))
{
    size_t at = 0;
    qn_cu_result s = QN_CU_SUCCESS;
    for (int i = 0; i < mem.n_region && !s; i++) {
        const region *g = &mem.regions[i];
        if (g->big) {
            s = fn(at, g->at - at);
            at = g->at + g->bytes;
        }
    }
    return s ? s : fn(at, mem.used - at);
}

/* In the stream's order: a plain copy returns before all of it has arrived. */
static qn_cu_result send_span(size_t at, size_t bytes)
{
    return card_dev.cuda.api.MemcpyHtoDAsync(mem.memory + at, mem.arena + at, bytes, card_dev.stream);
}

static qn_cu_result send_stretch(size_t at, size_t bytes)
{
    memcpy(mem.sent + at, mem.arena + at, bytes);
    return send_span(at, bytes);
}

static qn_cu_result fetch_stretch(size_t at, size_t bytes)
{
    return card_dev.cuda.api.MemcpyDtoH(mem.arena + at, mem.memory + at, bytes);
}

/* Room on the card for all there is; what was there stays. */
static qn_cu_result grow(void)
{
    const qn_cuda_api *cu = &card_dev.cuda.api;
    const size_t bytes = mem.used + mem.used / 2 > least_bytes ? mem.used + mem.used / 2 : least_bytes;
    qn_cu_ptr more = 0;
    qn_cu_result s = cu->MemAlloc(&more, bytes);
    if (s) {
        return s;
    }
    if (mem.memory) {
        s = mem.kept ? cu->MemcpyDtoDAsync(more, mem.memory, mem.kept, card_dev.stream) : s;
        s = s ? s : cu->StreamSynchronize(card_dev.stream);
        cu->MemFree(mem.memory);
    }
    mem.memory = more;
    mem.held = bytes;
    return s;
}

/* What the host has written goes to the card, where nothing was launched since. */
int card_send(emu_report *r)
{
    const qn_cuda_api *cu = &card_dev.cuda.api;
    if (mem.failed) {
        return emu_settle(r);
    }
    if (mem.ahead) {
        return 0;
    }
    qn_cu_result s = mem.held < mem.used ? grow() : QN_CU_SUCCESS;
    if (s) {
        return card_driver_failed(s, "memory of a case", r);
    }
    if (encode_maps(r)) {
        return -1;
    }
    s = each_stretch(send_stretch);
    for (int i = 0; i < mem.n_region && !s; i++) {
        region *g = &mem.regions[i];
        if (g->fresh) {
            s = cu->MemsetD8Async(mem.memory + g->at, g->flags & EMU_UNWRITTEN ? 0xff : 0, g->bytes,
                                  card_dev.stream);
            g->fresh = false;
        }
    }
    for (int i = 0; i < mem.n_dirty && !s; i++) {
        s = send_span(mem.dirty[i].at, mem.dirty[i].bytes);
    }
    mem.n_dirty = 0;
    mem.kept = mem.used;
    mem.ahead = s == QN_CU_SUCCESS;
    return s ? card_driver_failed(s, "sending a case", r) : 0;
}

/* First byte of a range that came back otherwise than it went. */
static bool changed(size_t from, size_t to, size_t *at)
{
    if (memcmp(mem.arena + from, mem.sent + from, to - from) == 0) {
        return false;
    }
    for (*at = from; mem.arena[*at] == mem.sent[*at]; ++*at) {
    }
    return true;
}

static int check_guards(emu_report *r)
{
    char text[300];
    size_t at, end = 0;
    for (int i = 0; i <= mem.n_region; i++) {
        const region *g = i < mem.n_region ? &mem.regions[i] : NULL,
                     *before = i > 0 ? &mem.regions[i - 1] : NULL;
        if (changed(end, g ? g->at : mem.used, &at)) {
            if (g && (!before || g->at - at <= GUARD)) {
                snprintf(text, sizeof text, "a kernel wrote %zu bytes before '%s'", g->at - at, g->name);
            } else {
                snprintf(text, sizeof text, "a kernel wrote at %zu of '%s', which has %zu bytes",
                         at - before->at, before->name, before->bytes);
            }
            return card_report(r, "bounds", text);
        }
        if (g && !g->big && g->flags & EMU_READ_ONLY && changed(g->at, g->at + g->bytes, &at)) {
            snprintf(text, sizeof text, "a kernel wrote byte %zu of '%s', which is to be read only",
                     at - g->at, g->name);
            return card_report(r, "bounds", text);
        }
        end = g ? g->at + g->bytes : 0;
    }
    return 0;
}

static qn_cu_result wait_for_launches(void)
{
    const double start = qn_cuda_seconds();
    qn_cu_result s;
    while ((s = card_dev.cuda.api.StreamQuery(card_dev.stream)) == QN_CU_NOT_READY &&
           qn_cuda_seconds() - start < WAIT_SECONDS) {
        usleep(20);
    }
    return s;
}

int emu_settle(emu_report *r)
{
    char text[64];
    if (mem.failed) {
        mem.failed = false;
        *r = mem.why;
        return -1;
    }
    if (!mem.ahead) {
        return 0;
    }
    mem.ahead = false;
    qn_cu_result s = wait_for_launches();
    if (s == QN_CU_NOT_READY) {
        card_dev.lost = true;
        snprintf(text, sizeof text, "launches did not end within %d s", WAIT_SECONDS);
        return card_report(r, "deadlock", text);
    }
    s = s ? s : each_stretch(fetch_stretch);
    return s ? card_driver_failed(s, "running kernels", r) : check_guards(r);
}
