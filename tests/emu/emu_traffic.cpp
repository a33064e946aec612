// emu_traffic.cpp: how the lanes of a warp share their accesses to memory: what a card would make of each
// load and store, counted under emulation. An access of a warp is what its lanes do at one line of the source
// the n-th time they come there. Of each line: accesses, bytes that lanes asked for, sectors of 32 bytes that
// global memory delivers for them, and passes of 128 bytes through L1 or the banks of shared memory. The
// least number of either is what the same bytes would take side by side.
//
// Rules: global memory moves sectors of 32 bytes. L1 and shared memory serve 32 lanes of up to 4 bytes at
// once, 16 of 8, 8 of 16; of those, each of the 32 banks of 4 bytes gives one word a pass. (NVIDIA's tuning
// guides.)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unistd.h>

#include "emu_internal.h"

extern "C" char __executable_start;

namespace
{

struct lane_access {
    const unsigned char *p;
    size_t bytes;
};

struct place {
    std::string file;
    int line;
    bool operator<(const place &o) const
    {
        return std::tie(file, line) < std::tie(o.file, o.line);
    }
};

struct line_key { // one line's loads or stores of one kind of memory
    const place *at;
    bool shared, write;
    bool operator<(const line_key &o) const
    {
        return std::tie(*at, shared, write) < std::tie(*o.at, o.shared, o.write);
    }
};

struct totals {
    uint64_t accesses, lanes, bytes, sectors, least_sectors, passes, least_passes;
};

struct warp_access {
    line_key key;
    lane_access lanes[32];
    bool there[32];
};

struct thread_trace {
    std::map<const place *, uint32_t> times;
    const place *last;
    uint32_t nth;
};

bool on;
std::set<place> places;
std::map<std::pair<const void *, int>, const place *> place_of_site; // by pc, or by file and line
typedef std::tuple<uint32_t, int, const place *, bool, bool, uint32_t> access_key; // block, warp, ..., time
std::map<access_key, warp_access> open_accesses;
std::map<std::pair<uint32_t, int>, thread_trace> threads; // by block and thread
uint32_t last_seq;
std::map<std::string, std::map<line_key, totals>> programs;

// The line of the kernel: of the functions inlined there the innermost that is not the emulator's.
place find_place(emu_site site)
{
    if (!site.pc) {
        const char *base = strrchr(site.file, '/');
        return place{base ? base + 1 : site.file, site.line};
    }
    char command[160], text[512];
    snprintf(command, sizeof command, "addr2line -i -e /proc/%ld/exe 0x%zx 2>/dev/null", (long)getpid(),
             (size_t)((const char *)site.pc - &__executable_start) - 1);
    place found{"?", 0};
    FILE *p = popen(command, "r");
    while (p && fgets(text, sizeof text, p)) {
        char *colon = strrchr(text, ':');
        if (!colon) {
            continue;
        }
        *colon = '\0';
        const char *base = strrchr(text, '/');
        const place here{base ? base + 1 : text, atoi(colon + 1)};
        if (found.line == 0) {
            found = here;
        }
        if (here.file.compare(0, 4, "emu_") != 0) {
            found = here;
            break;
        }
    }
    if (p) {
        pclose(p);
    }
    return found;
}

const place *site_place(emu_site site)
{
    const auto key =
        site.pc ? std::make_pair(site.pc, 0) : std::make_pair((const void *)site.file, site.line);
    const auto known = place_of_site.find(key);
    if (known != place_of_site.end()) {
        return known->second;
    }
    return place_of_site[key] = &*places.insert(find_place(site)).first;
}

// Passes for lanes [from, to): words that the busiest bank gives.
uint64_t passes_of(const warp_access &a, int from, int to)
{
    std::map<uintptr_t, std::set<uintptr_t>> banks;
    for (int i = from; i < to; i++) {
        for (size_t b = 0; a.there[i] && b < a.lanes[i].bytes; b += 4) {
            const uintptr_t word = ((uintptr_t)a.lanes[i].p + b) / 4;
            banks[word % 32].insert(word);
        }
    }
    size_t most = 0;
    for (const auto &bank : banks) {
        most = std::max(most, bank.second.size());
    }
    return most;
}

void add_access(totals &t, const warp_access &a)
{
    std::set<uintptr_t> sectors, words;
    size_t widest = 1, bytes = 0;
    for (int i = 0; i < 32; i++) {
        if (!a.there[i]) {
            continue;
        }
        const uintptr_t first = (uintptr_t)a.lanes[i].p, last = first + a.lanes[i].bytes - 1;
        for (uintptr_t s = first / 32; s <= last / 32; s++) {
            sectors.insert(s);
        }
        for (uintptr_t w = first / 4; w <= last / 4; w++) {
            words.insert(w);
        }
        widest = std::max(widest, a.lanes[i].bytes);
        bytes += a.lanes[i].bytes;
        t.lanes++;
    }
    const int group = widest <= 4 ? 32 : widest <= 8 ? 16 : 8;
    for (int from = 0; from < 32; from += group) {
        t.passes += passes_of(a, from, from + group);
    }
    t.accesses++;
    t.bytes += bytes;
    t.sectors += sectors.size();
    t.least_sectors += (words.size() + 7) / 8;
    t.least_passes += (words.size() + 31) / 32;
}

void close_accesses()
{
    for (const auto &a : open_accesses) {
        add_access(programs[emu_m.launch->program->name][a.second.key], a.second);
    }
    open_accesses.clear();
    threads.clear();
}

// The compiler splits a vector into its members: what continues an access at the same line is one with it.
bool continues(const lane_access &a, const unsigned char *p, size_t bytes)
{
    const size_t all = a.bytes + bytes, rounded = all <= 8 ? 8 : 16;
    return p == a.p + a.bytes && all <= 16 &&
           (uintptr_t)a.p / rounded == ((uintptr_t)p + bytes - 1) / rounded;
}

} // namespace

void emu_traffic_on(void)
{
    on = true;
}

void emu_traffic_note(const void *pointer, size_t bytes, bool shared, bool write, emu_site site)
{
    if (!on) {
        return;
    }
    const uint32_t seq = emu_m.block->seq;
    if (seq != last_seq && !emu_m.launch->cooperative) { // one block after the other: bounds what is held
        close_accesses();
    }
    last_seq = seq;
    const int tid = emu_m.fiber->tid, lane = tid % 32;
    const unsigned char *p = (const unsigned char *)pointer;
    const place *at = site_place(site);
    thread_trace &t = threads[{seq, tid}];
    if (t.last == at) {
        const auto open = open_accesses.find({seq, tid / 32, at, shared, write, t.nth});
        if (open != open_accesses.end() && open->second.there[lane] &&
            continues(open->second.lanes[lane], p, bytes)) {
            open->second.lanes[lane].bytes += bytes;
            return;
        }
    }
    t.last = at;
    t.nth = t.times[at]++;
    warp_access &a = open_accesses[{seq, tid / 32, at, shared, write, t.nth}];
    a.key = line_key{at, shared, write};
    a.lanes[lane] = lane_access{p, bytes};
    a.there[lane] = true;
}

void emu_traffic_end(void)
{
    if (on) {
        close_accesses();
    }
}

int emu_traffic_each(emu_traffic_fn fn, void *ctx)
{
    int n = 0;
    for (const auto &program : programs) {
        for (const auto &line : program.second) {
            const totals &t = line.second;
            const emu_traffic row = {program.first.c_str(),
                                     line.first.at->file.c_str(),
                                     line.first.at->line,
                                     line.first.shared,
                                     line.first.write,
                                     t.accesses,
                                     t.lanes,
                                     t.bytes,
                                     t.sectors,
                                     t.least_sectors,
                                     t.passes,
                                     t.least_passes};
            fn(&row, ctx);
            n++;
        }
    }
    return n;
}

static void print_row(const emu_traffic *t, void *)
{
    if (t->passes <= t->least_passes && (t->shared || t->sectors <= t->least_sectors)) {
        return;
    }
    printf("%-40.40s %s:%d %s %s: %llu accesses of %.1f lanes, %.1f bytes a lane", t->program, t->file,
           t->line, t->shared ? "shared" : "global", t->write ? "stores" : "loads",
           (unsigned long long)t->accesses, (double)t->lanes / (double)t->accesses,
           (double)t->bytes / (double)t->lanes);
    if (!t->shared) {
        printf(", sectors %.2f times the least", (double)t->sectors / (double)t->least_sectors);
    }
    printf(", passes %.2f times\n", (double)t->passes / (double)t->least_passes);
}

void emu_traffic_print(void)
{
    emu_traffic_each(print_row, nullptr);
}
