/* Makes one chosen file operation of this process fail, or the process end or stop there. Loaded with LD_PRELOAD.
 *
 * PENSTOCK_FAULT is "<action> <calls> <n> <pattern>", for example "kill fdatasync,rename 3 /some/log/*":
 *   action   count: only count.  kill, stop: SIGKILL or SIGSTOP just before the n-th call.
 *            eio, short: the n-th call fails, or takes half of the bytes.
 *            full: ENOSPC from the n-th call on, of those that make a file longer; what is overwritten has its space.
 *   calls    names of functions, joined by commas
 *   pattern  as in fnmatch(3); a * also matches slashes
 * It is read at every call, so a process can arm and disarm itself. PENSTOCK_FAULT_REPORT names a file that gets one
 * line when the fault happens. fault_calls() tells how many calls matched since the plan was set.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, FAIL_EIO, FAIL_ENOSPC, SHORT };

enum growth { SAME_SIZE, LONGER };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char armed[PATH_MAX + 256];
static long calls;

long fault_calls(void) { return calls; }

static void report(const char *action, const char *call, const char *path) {
    const char *file = getenv("PENSTOCK_FAULT_REPORT");
    if (!file)
        return;
    char line[PATH_MAX + 128];
    int length = snprintf(line, sizeof line, "%s at call %ld: %s %s\n", action, calls, call, path);
    int descriptor = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor >= 0) {
        syscall(SYS_write, descriptor, line, (size_t)length);
        close(descriptor);
    }
}

static int is_listed(const char *list, const char *call) {
    size_t length = strlen(call);
    for (const char *at = list; (at = strstr(at, call)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
            return 1;
    return 0;
}

static enum fault happens(const char *call, const char *path, enum growth growth) {
    const char *plan = getenv("PENSTOCK_FAULT");
    char action[16], list[256], pattern[PATH_MAX];
    long nth;
    enum fault fault = NONE;
    if (!plan || sscanf(plan, "%15s %255s %ld %4095s", action, list, &nth, pattern) != 4)
        return NONE;
    if (!is_listed(list, call) || fnmatch(pattern, path, 0) != 0)
        return NONE;
    if (strcmp(action, "full") == 0 && growth != LONGER)
        return NONE;
    pthread_mutex_lock(&guard);
    if (strcmp(armed, plan) != 0) {
        snprintf(armed, sizeof armed, "%s", plan);
        calls = 0;
    }
    calls++;
    int now = calls == nth;
    if (now && strcmp(action, "count") != 0)
        report(action, call, path);
    if (now && strcmp(action, "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (now && strcmp(action, "stop") == 0)
        kill(getpid(), SIGSTOP);
    else if (now && strcmp(action, "eio") == 0)
        fault = FAIL_EIO;
    else if (calls >= nth && strcmp(action, "full") == 0)
        fault = FAIL_ENOSPC;
    else if (now && strcmp(action, "short") == 0)
        fault = SHORT;
    pthread_mutex_unlock(&guard);
    return fault;
}

static enum fault happens_to_file(const char *call, int descriptor, off64_t end) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return NONE;
    path[length] = 0;
    struct stat64 found;
    int longer = end > 0 && fstat64(descriptor, &found) == 0 && end > found.st_size;
    return happens(call, path, longer ? LONGER : SAME_SIZE);
}

static int failed(enum fault fault) {
    if (fault == FAIL_EIO)
        errno = EIO;
    if (fault == FAIL_ENOSPC)
        errno = ENOSPC;
    return fault == FAIL_EIO || fault == FAIL_ENOSPC;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd) { return failed(happens_to_file("fsync", fd, 0)) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return failed(happens_to_file("fdatasync", fd, 0)) ? -1 : REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { return failed(happens_to_file("ftruncate", fd, 0)) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) {
    return failed(happens_to_file("ftruncate", fd, 0)) ? -1 : REAL(ftruncate64)(fd, size);
}
int unlink(const char *path) { return failed(happens("unlink", path, SAME_SIZE)) ? -1 : REAL(unlink)(path); }
int rmdir(const char *path) { return failed(happens("rmdir", path, SAME_SIZE)) ? -1 : REAL(rmdir)(path); }
int mkdir(const char *path, mode_t mode) { return failed(happens("mkdir", path, LONGER)) ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *from, const char *to) { return failed(happens("rename", to, SAME_SIZE)) ? -1 : REAL(rename)(from, to); }

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return failed(happens("rename", to, SAME_SIZE)) ? -1 : REAL(renameat)(from_fd, from, to_fd, to);
}

int unlinkat(int fd, const char *name, int flags) {
    char link[64], path[2 * PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = name[0] == '/' ? 0 : readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        length = 0;
    snprintf(path + length, PATH_MAX, "%s%s", length ? "/" : "", name);
    return failed(happens("unlink", path, SAME_SIZE)) ? -1 : REAL(unlinkat)(fd, name, flags);
}

/* Half of the bytes, at least one. */
static size_t half(size_t bytes) { return bytes < 2 ? bytes : bytes / 2; }

ssize_t write(int fd, const void *data, size_t bytes) {
    enum fault fault = happens_to_file("write", fd, 0);
    return failed(fault) ? -1 : REAL(write)(fd, data, fault == SHORT ? half(bytes) : bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    enum fault fault = happens_to_file("pwrite", fd, at + (off64_t)bytes);
    return failed(fault) ? -1 : REAL(pwrite)(fd, data, fault == SHORT ? half(bytes) : bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at) {
    enum fault fault = happens_to_file("pwrite", fd, at + (off64_t)bytes);
    return failed(fault) ? -1 : REAL(pwrite64)(fd, data, fault == SHORT ? half(bytes) : bytes, at);
}

static ssize_t vector(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    off64_t end = at;
    for (int part = 0; part < count; part++)
        end += (off64_t)parts[part].iov_len;
    enum fault fault = happens_to_file("pwritev", fd, end);
    if (failed(fault))
        return -1;
    if (fault != SHORT)
        return REAL(pwritev64v2)(fd, parts, count, at, flags);
    /* The first part and half of the last, so that the rest begins in the middle of one. */
    ssize_t written = 0;
    for (int part = 0; part < count; part++) {
        size_t bytes = part == count - 1 ? half(parts[part].iov_len) : parts[part].iov_len;
        ssize_t done = REAL(pwrite64)(fd, parts[part].iov_base, bytes, at + written);
        if (done < 0)
            return written ? written : -1;
        written += done;
    }
    return written;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return vector(fd, parts, count, at, 0); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return vector(fd, parts, count, at, 0); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return vector(fd, parts, count, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return vector(fd, parts, count, at, flags);
}
