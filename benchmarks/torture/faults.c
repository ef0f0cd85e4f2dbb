/* Preloaded into a process: records what it does to files below EQKIN_FAULT_ROOT, or makes one of these calls fail.
 *
 * set_fault(log, at, error, lasting): from now on, every call that changes the disk is recorded in the file `log`: a line
 * with name, inode, offset or size, number of bytes, path and second path, then the bytes. The call number `at` fails
 * with the errno `error`, and if `lasting` all after it. count_calls() returns how many there were since. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static long calls, fail_at;
static int fail_errno = EIO, lasting, log_fd = -1;
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_open = dlsym(RTLD_NEXT, "open");
    root = getenv("EQKIN_FAULT_ROOT");
}

void set_fault(const char *log, long at, int error, int last) {
    calls = 0, fail_at = at, fail_errno = error, lasting = last;
    if (log_fd >= 0) close(log_fd);
    log_fd = *log ? real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
}

long count_calls(void) { return calls; }

static int is_inside(const char *path) { return root && path && !strncmp(path, root, strlen(root)); }

static int find_path(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return is_inside(path);
}

static long find_inode(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : (long)status.st_ino;
}

/* Count a call; return 1 if it must fail. */
static int count(void) {
    int bad = ++calls == fail_at || (lasting && fail_at && calls > fail_at);
    if (bad) errno = fail_errno;
    return bad;
}

static void record(const char *name, long a, long b, const char *path, const char *second, const void *data, size_t size) {
    char line[2 * PATH_MAX + 64];
    if (log_fd < 0) return;
    int n = snprintf(line, sizeof line, "%s\t%ld\t%ld\t%zu\t%s\t%s\n", name, a, b, data ? size : 0, path, second);
    if (real_write(log_fd, line, n) != n || (data && real_write(log_fd, data, size) != (ssize_t)size)) abort();
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define GUARD(condition, call, log) \
    if (!(condition)) return call; \
    pthread_mutex_lock(&mutex); \
    __typeof__(call) result = count() ? -1 : call; \
    if (result != -1) { int kept = errno; log; errno = kept; } \
    pthread_mutex_unlock(&mutex); \
    return result

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list list; va_start(list, flags); int mode = flags & O_CREAT ? va_arg(list, int) : 0; va_end(list); \
        int makes = (flags & O_CREAT) && access(path, F_OK), cuts = (flags & O_TRUNC) && !makes; \
        GUARD(is_inside(path) && (makes || cuts), real(path, flags, mode), \
              record(makes ? "create" : "truncate", find_inode(result), 0, path, "", NULL, 0)); \
    }
OPEN(open)
OPEN(open64)

#define FD_CALL(name, label, parameters, arguments, a, data, size) \
    int name parameters; \
    int name parameters { REAL(int, name, int, ...); char path[PATH_MAX]; \
        GUARD(find_path(fd, path), real arguments, record(label, find_inode(fd), a, path, "", data, size)); }

/* The names of a folder and their inodes are recorded when it is synchronised: some libraries rename files by system
 * calls that cannot be intercepted. */
static void record_sync(int fd, const char *path) {
    static char listing[1 << 20];
    size_t size = 0;
    struct stat status;
    if (!fstat(fd, &status) && S_ISDIR(status.st_mode)) {
        DIR *folder = opendir(path);
        struct dirent *entry;
        while (folder && (entry = readdir(folder)))
            if (entry->d_type == DT_REG && size + NAME_MAX + 32 < sizeof listing)
                size += sprintf(listing + size, "%ld/%s\n", (long)entry->d_ino, entry->d_name);
        if (folder) closedir(folder);
    }
    record("fsync", find_inode(fd), 0, path, "", size ? listing : NULL, size);
}
#define SYNC(name) \
    int name(int fd) { REAL(int, name, int); char path[PATH_MAX]; \
        GUARD(find_path(fd, path), real(fd), record_sync(fd, path)); }
SYNC(fsync)
SYNC(fdatasync)
FD_CALL(ftruncate, "truncate", (int fd, off_t size), (fd, size), size, NULL, 0)
FD_CALL(ftruncate64, "truncate", (int fd, off64_t size), (fd, size), size, NULL, 0)

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    long at = lseek(fd, 0, SEEK_CUR);
    GUARD(fd != log_fd && find_path(fd, path), real_write(fd, data, size),
          record("write", find_inode(fd), at, path, "", data, result));
}
#define PWRITE(name, off) \
    ssize_t name(int fd, const void *data, size_t size, off at) { \
        REAL(ssize_t, name, int, const void *, size_t, off); char path[PATH_MAX]; \
        GUARD(find_path(fd, path), real(fd, data, size, at), record("write", find_inode(fd), at, path, "", data, result)); }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PATH_CALL(name, label, parameters, arguments) \
    int name parameters { REAL(int, name, const char *, ...); \
        GUARD(is_inside(path), real arguments, record(label, 0, 0, path, "", NULL, 0)); }
PATH_CALL(unlink, "unlink", (const char *path), (path))
PATH_CALL(rmdir, "unlink", (const char *path), (path))
PATH_CALL(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
int rename(const char *path, const char *to) {
    REAL(int, rename, const char *, const char *);
    GUARD(is_inside(path), real(path, to), record("rename", 0, 0, path, to, NULL, 0));
}
int link(const char *path, const char *to) {
    REAL(int, link, const char *, const char *);
    GUARD(is_inside(path), real(path, to), record("link", 0, 0, path, to, NULL, 0));
}
int linkat(int from, const char *path, int folder, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    GUARD(is_inside(path), real(from, path, folder, to, flags), record("link", 0, 0, path, to, NULL, 0));
}
