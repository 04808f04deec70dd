// Linux's asynchronous reads of files: io_submit(2). A kernel has no C library to call.
#ifndef HEARTH_ASYNCHRONOUS_READS_H
#define HEARTH_ASYNCHRONOUS_READS_H

#include "isa/vector.h"

// struct iocb of linux/aio_abi.h, little-endian.
typedef struct {
    uint64_t data;
    uint32_t key, flags;
    uint16_t operation;
    int16_t priority;
    uint32_t file;
    uint64_t buffer, bytes;
    int64_t offset;
    uint64_t reserved;
    uint32_t more_flags, result_file;
} Read;

// struct io_event: `data` of a read that has ended, and its bytes, or an error below 0.
typedef struct {
    uint64_t data, read;
    int64_t bytes, more;
} ReadEnd;

#if defined(__linux__) && defined(__x86_64__)
enum { IO_GETEVENTS = 208, IO_SUBMIT = 209 };
INLINE long call_system(long number, uint64_t a, long b, long c, void *d, void *e) {
    register void *fourth __asm__("r10") = d, *fifth __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return number;
}
#elif defined(__linux__) && defined(__aarch64__)
enum { IO_GETEVENTS = 4, IO_SUBMIT = 2 };
INLINE long call_system(long number, uint64_t a, long b, long c, void *d, void *e) {
    register long call __asm__("x8") = number;
    register uint64_t first __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c;
    register void *fourth __asm__("x3") = d, *fifth __asm__("x4") = e;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(call), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
                     : "memory");
    return (long)first;
}
#else
enum { IO_GETEVENTS, IO_SUBMIT };
INLINE long call_system(long number, uint64_t a, long b, long c, void *d, void *e) {
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e;
    return 0;
}
#endif

// Begins a read; returns 0 if there is no room for another one now.
INLINE int begin_read(uint64_t context, Read *read) {
    enum { TRY_AGAIN = -11 };
    Read *reads[] = {read};
    long begun = call_system(IO_SUBMIT, context, 1, (long)(intptr_t)reads, 0, 0);
    if (begun < 0 && begun != TRY_AGAIN) __builtin_trap();
    return begun == 1;
}

// Waits at most 0.2 ms for the end of a read, since another thread may have got the last one.
// Returns whether one has ended.
INLINE int next_end(uint64_t context, ReadEnd *end) {
    int64_t limit[] = {0, 200000};
    return call_system(IO_GETEVENTS, context, 1, 1, end, limit) == 1;
}

#endif
