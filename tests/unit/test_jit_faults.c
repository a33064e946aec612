// rooms: room_codegen
// The kernel cache under processes that race, die, and find no room: children run this program again with
// arguments. Needs an NVRTC (docs/jit-and-cache.md); no GPU.
#include "unit/jit_util.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "codegen/jit.h"

enum { PROGRAMS = 5, NOBODY = 65534 };

static int n_warnings;

static void count_warning(void *user, int level, const char *line)
{
    FILE *f = user;
    if (level == 0) {
        n_warnings++;
        fprintf(f, "%s\n", line);
    }
}

static qn_nvrtc nvrtc;

// A child: compiles PROGRAMS kernels through the cache; `round` makes them others. Exit status: 100 +
// compiles, or 1 with the error on stderr. Warnings go to stderr.
static int run_jit(const char *dir, int round)
{
    static char source[PROGRAMS][200], symbol[PROGRAMS][24];
    qn_jit_program p[PROGRAMS];
    const qn_kernel *k[PROGRAMS];
    qn_jit *jit = NULL;
    qn_err err;
    for (int i = 0; i < PROGRAMS; i++) {
        snprintf(symbol[i], sizeof symbol[i], "fill_%d", i);
        snprintf(source[i], sizeof source[i],
                 "extern \"C\" __global__ void %s(float *x)\n{\n    x[threadIdx.x] = %d;\n}\n", symbol[i],
                 round * PROGRAMS + i);
        p[i] = (qn_jit_program){"fill", "f32", source[i], symbol[i]};
    }
    qn_jit_opts o = {.nvrtc = &nvrtc, .cache_dir = dir, .n_threads = 2, .log = count_warning, .user = stderr};
    int rc = nvrtc.n_arch > 0 ? 0 : qn_nvrtc_load(&nvrtc, 0, &err);
    rc = rc ? rc : qn_arch_by_name(&o.arch, &nvrtc, "sm_80", &err);
    rc = rc ? rc : qn_jit_new(&jit, &o, &err);
    rc = rc ? rc : qn_jit_compile_all(jit, p, PROGRAMS, k, &err);
    for (int i = 0; i < PROGRAMS && rc == 0; i++) {
        if (k[i]->cubin.size < 64 || !qn_kernel_find(k[i], symbol[i])) {
            rc = qn_fail(&err, "kernel %d is not whole", i);
        }
    }
    if (rc != 0) {
        fprintf(stderr, "error: %s\n", err.text);
        return 1;
    }
    int compiles = qn_jit_compiles(jit);
    qn_jit_free(jit);
    return 100 + compiles;
}

// How a child finds the world. "small-files": no file may exceed 64 bytes, as on a full disk. "nobody":
// another user, where this one is root. "full": its own tmpfs of 20 KiB on the folder. "endless": kernels
// that nobody has compiled yet, until it is killed.
static int child(const char *how, const char *dir)
{
    if (strcmp(how, "small-files") == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){64, 64});
    } else if (strcmp(how, "nobody") == 0 && geteuid() == 0) {
        qn_err err; // NVRTC may lie where only this user can read
        if (qn_nvrtc_load(&nvrtc, 0, &err) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0) {
            return 2;
        }
    } else if (strcmp(how, "full") == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", dir, "tmpfs", 0, "size=20k") != 0) {
            return 3;
        }
        int rc = run_jit(dir, 0), left = count_names(dir, ".tmp-", NULL);
        return left ? 4 : rc;
    }
    int rc = run_jit(dir, 0);
    for (int round = 1; strcmp(how, "endless") == 0 && rc >= 100; round++) {
        rc = run_jit(dir, round * 1000 + (int)getpid() % 1000);
    }
    return rc;
}

static pid_t start(const char *how, const char *dir, int errors)
{
    pid_t pid = fork();
    if (pid == 0) {
        dup2(errors, STDERR_FILENO);
        execl("/proc/self/exe", "test_jit_faults", how, dir, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static int finish(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// All that comes through a pipe, as text (4096 bytes).
static void read_pipe(int fds[2], char *text)
{
    close(fds[1]);
    size_t used = 0;
    ssize_t n;
    while (used < 4095 && (n = read(fds[0], text + used, 4095 - used)) > 0) {
        used += (size_t)n;
    }
    close(fds[0]);
    text[used] = '\0';
}

// Runs one child; its stderr goes to text (4096 bytes). Returns its exit status.
static int run(const char *how, const char *dir, char *text)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = start(how, dir, fds[1]);
    read_pipe(fds, text);
    return finish(pid);
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

static void expect(int rc, int wanted, const char *text)
{
    if (rc != wanted) {
        fail_msg("exit status %d instead of %d: %s", rc, wanted, text);
    }
}

static void eight_cold_processes_at_once(void **state)
{
    (void)state;
    char dir[256], text[4096];
    int fds[2];
    temp_dir(dir);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pids[8];
    for (int i = 0; i < 8; i++) {
        pids[i] = start("plain", dir, fds[1]);
    }
    read_pipe(fds, text);
    for (int i = 0; i < 8; i++) {
        assert_in_range(finish(pids[i]), 100, 100 + PROGRAMS);
    }
    assert_string_equal(text, ""); // no warning from any of them
    assert_int_equal(whole_entries(dir), PROGRAMS);
    expect(run("plain", dir, text), 100, text);
    remove_tree(dir);
}

// Waits until a folder has more than `n` names; ten minutes at most.
static void wait_for_names(const char *dir, int n)
{
    for (int ms = 0; count_names(dir, "", NULL) <= n; ms++) {
        assert_in_range(ms, 0, 600000);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

// Killed at many moments of its work, from the first name in the folder on: what is published is whole, what
// is not is swept, and a run after it is right.
static void killed_processes_leave_nothing(void **state)
{
    (void)state;
    char dir[256], text[4096];
    temp_dir(dir);
    int null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 24; i++) {
        int before = count_names(dir, "", NULL);
        pid_t pid = start("endless", dir, null);
        wait_for_names(dir, before + i % 8);
        nanosleep(&(struct timespec){.tv_nsec = 700000L * i}, NULL);
        kill(pid, SIGKILL);
        assert_int_equal(finish(pid), -1); // by the signal: it does not end by itself
        if (i % 6 == 5 && i < 23) {
            remove_tree(dir);
            mkdir(dir, 0777);
        }
    }
    close(null);
    int rc = run("plain", dir, text);
    assert_in_range(rc, 100, 100 + PROGRAMS);
    assert_string_equal(text, "");
    assert_true(whole_entries(dir) >= PROGRAMS);
    remove_tree(dir);
}

static void damaged_entries_are_told_once_and_repaired(void **state)
{
    (void)state;
    char dir[256], path[800], text[4096];
    temp_dir(dir);
    expect(run("plain", dir, text), 100 + PROGRAMS, text);
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') {
            continue;
        }
        size_t size;
        snprintf(path, sizeof path, "%s/%s/kernel.cubin", dir, e->d_name);
        char *data = read_file(path, &size);
        switch (n++) {
        case 0: // cut
            assert_int_equal(truncate(path, (off_t)size / 2), 0);
            break;
        case 1: // a bit
            data[size / 2] ^= 4;
            write_file(path, data, size);
            break;
        case 2: // empty
            assert_int_equal(truncate(path, 0), 0);
            break;
        case 3: // gone
            assert_int_equal(unlink(path), 0);
            break;
        default:
            break;
        }
        free(data);
    }
    closedir(d);
    expect(run("plain", dir, text), 100 + 4, text);
    assert_int_equal(lines(text), 1);
    assert_non_null(strstr(text, "4 damaged entries dropped"));
    assert_int_equal(whole_entries(dir), PROGRAMS);
    expect(run("plain", dir, text), 100, text);
    assert_string_equal(text, "");
    remove_tree(dir);
}

// Compiled, in memory, one warning that names the place and the cause, nothing left.
static void expect_memory_only(const char *how, const char *dir, const char *cause)
{
    char text[4096];
    expect(run(how, dir, text), 100 + PROGRAMS, text);
    assert_int_equal(lines(text), 1);
    assert_non_null(strstr(text, dir));
    assert_non_null(strstr(text, cause));
    assert_non_null(strstr(text, "for this run only"));
}

static void a_disk_that_takes_nothing(void **state)
{
    (void)state;
    char dir[256], text[4096];
    temp_dir(dir);
    expect_memory_only("small-files", dir, "File too large");
    assert_int_equal(count_names(dir, "", NULL), 0);
    int rc = run("full", dir, text);
    if (rc == 3) {
        print_message("no right to mount a tmpfs: the full disk was a file size limit only\n");
    } else {
        expect(rc, 100 + PROGRAMS, text);
        assert_int_equal(lines(text), 1);
        assert_non_null(strstr(text, "No space left on device"));
    }
    remove_tree(dir);
}

static void a_folder_that_may_not_be_written(void **state)
{
    (void)state;
    char dir[256], text[4096];
    temp_dir(dir);
    assert_int_equal(chmod(dir, 0555), 0);
    expect_memory_only("nobody", dir, "Permission denied");
    assert_int_equal(count_names(dir, "", NULL), 0);
    // What is in it is used all the same.
    assert_int_equal(chmod(dir, 0777), 0);
    expect(run("plain", dir, text), 100 + PROGRAMS, text);
    assert_int_equal(chmod(dir, 0555), 0);
    expect(run("nobody", dir, text), 100, text);
    assert_string_equal(text, "");
    assert_int_equal(chmod(dir, 0777), 0);
    remove_tree(dir);
}

static void a_cache_path_that_is_a_file(void **state)
{
    (void)state;
    char dir[256], path[300];
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    write_file(path, "x", 1);
    expect_memory_only("plain", path, "Not a directory");
    snprintf(path, sizeof path, "%s/file/below", dir);
    expect_memory_only("plain", path, "Not a directory");
    remove_tree(dir);
}

// qn_cache_place as a program outside any checkout sees it, with these variables set.
static void place(const char *exe, const char *const vars[4], const char *flag, char *out)
{
    static const char *const names[] = {"QUERN_CACHE", "XDG_CACHE_HOME", "HOME"};
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 3; i++) {
            if (vars[i]) {
                setenv(names[i], vars[i], 1);
            } else {
                unsetenv(names[i]);
            }
        }
        dup2(fds[1], STDOUT_FILENO);
        execl(exe, exe, "--place", flag, (char *)NULL);
        _exit(127);
    }
    read_pipe(fds, out);
    assert_int_equal(finish(pid), 0);
}

static void the_place_follows_the_stated_order(void **state)
{
    (void)state;
    char dir[256], copy[300], out[4096];
    static const struct {
        const char *vars[4], *flag, *expected;
    } cases[] = {
        {{"/e", "/x", "/h"}, "/f", "/f|--cache"},
        {{"/e", "/x", "/h"}, NULL, "/e|QUERN_CACHE"},
        {{"", "/x", "/h"}, NULL, "/x/quern|XDG_CACHE_HOME"},
        {{NULL, "relative", "/h"}, NULL, "/h/.cache/quern|HOME"},
        {{NULL, "", "/h"}, NULL, "/h/.cache/quern|HOME"},
        {{NULL, NULL, NULL}, NULL, "memory|neither"},
        {{NULL, NULL, ""}, NULL, "memory|neither"},
        {{NULL, NULL, NULL}, "none", "memory|--cache"},
        {{"none", "/x", "/h"}, NULL, "memory|QUERN_CACHE"},
    };
    temp_dir(dir);
    snprintf(copy, sizeof copy, "%s/program", dir);
    size_t size;
    char *self = read_file("/proc/self/exe", &size);
    write_file(copy, self, size);
    free(self);
    assert_int_equal(chmod(copy, 0755), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        place(copy, cases[i].vars, cases[i].flag, out);
        if (strncmp(out, cases[i].expected, strlen(cases[i].expected)) != 0) {
            fail_msg("case %zu: %s instead of %s", i, out, cases[i].expected);
        }
    }
    // In a checkout its own cache/ comes before the user's folders.
    place("/proc/self/exe", cases[2].vars, NULL, out);
    assert_string_equal(out, QN_SOURCE_DIR "/cache|the checkout's cache/");
    remove_tree(dir);
}

static int print_place(const char *flag)
{
    char path[QN_PATH_MAX];
    const char *why;
    bool some = qn_cache_place(path, sizeof path, flag, &why);
    printf("%s|%s", some ? path : "memory", why);
    return fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--place") == 0) {
        return print_place(argv[2]);
    }
    if (argc == 3) {
        return child(argv[1], argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_cold_processes_at_once),
        cmocka_unit_test(killed_processes_leave_nothing),
        cmocka_unit_test(damaged_entries_are_told_once_and_repaired),
        cmocka_unit_test(a_disk_that_takes_nothing),
        cmocka_unit_test(a_folder_that_may_not_be_written),
        cmocka_unit_test(a_cache_path_that_is_a_file),
        cmocka_unit_test(the_place_follows_the_stated_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
