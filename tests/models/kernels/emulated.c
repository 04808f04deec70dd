// A program that calls kernels as standard input says, for machines that an emulator runs.
//
// It is linked with the kernels and with nothing else: no libc. A call is, in 64-bit words, the
// number of a function in `functions`, the counts of arrays, sizes and scalars, and the number of
// workgroups; then, for each array, its bytes' count and the bytes; then the sizes, and the scalars
// as floats. The last array is the result. The answer is the sum of what the kernel returned, as a
// word, and the result's bytes. Every array ends where memory begins that may not be read.
#include <stddef.h>
#include <stdint.h>

enum { MAX_ARRAYS = 16, MAX_SIZES = 16, MAX_SCALARS = 4, ARENA = 32 << 20, PAGE = 1 << 16 };
// System calls of Linux on aarch64, and flags of mmap.
enum { READ = 63, WRITE = 64, EXIT = 93, MMAP = 222 };
enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };

#define KERNEL(name) int name(void);
KERNELS
#undef KERNEL
#define KERNEL(name) (void *)name,
static void *const functions[] = {KERNELS};

// Arguments that are integers or pointers and those that are floats have registers of their own;
// what the registers do not hold is on the stack in order, where a kernel reads what it has.
#define EIGHT(from) from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]
#define U uint64_t
#define EIGHT_WORDS U, U, U, U, U, U, U, U
typedef int Kernel(EIGHT_WORDS, EIGHT_WORDS, EIGHT_WORDS, EIGHT_WORDS, EIGHT_WORDS, EIGHT_WORDS,
                   EIGHT_WORDS, float, float, float, float);

static long call(long number, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
                     x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = -1,
                     x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}

// Reads or writes all bytes; the program ends where the input does.
static void transfer(long number, void *bytes, size_t count) {
    for (char *at = bytes; count;) {
        long done = call(number, number == WRITE, (long)at, (long)count, 0);
        if (done <= 0) call(EXIT, done != 0, 0, 0, 0);
        at += done, count -= (size_t)done;
    }
}

static uint64_t word(void) {
    uint64_t value;
    transfer(READ, &value, sizeof value);
    return value;
}

// Memory before pages that may not be read.
static char *arena(void) {
    char *all = (char *)call(MMAP, 0, ARENA + PAGE, 0, PRIVATE_ANONYMOUS);
    // MAP_FIXED in a part of it.
    call(MMAP, (long)all, ARENA, READ_WRITE, PRIVATE_ANONYMOUS | 0x10);
    return all;
}

void _start(void) {
    static char *arenas[MAX_ARRAYS];
    for (int i = 0; i < MAX_ARRAYS; i++) arenas[i] = arena();
    for (;;) {
        Kernel *kernel = (Kernel *)functions[word()];
        uint64_t arrays = word(), sizes = word(), scalars = word(), workgroups = word();
        uint64_t words[56] = {0}, count = 0, failures = 0;
        float floats[MAX_SCALARS] = {0};
        for (uint64_t i = 0; i < arrays; i++) {
            words[2 * i] = (uint64_t)arenas[i] + ARENA - (count = word());
            transfer(READ, (void *)words[2 * i], count);
        }
        transfer(READ, words + 2 * arrays + 1, sizes * sizeof *words);
        transfer(READ, floats, scalars * sizeof *floats);
        while (workgroups) {
            words[2 * arrays] = --workgroups;
            failures +=
                (uint64_t)kernel(EIGHT(words), EIGHT((words + 8)), EIGHT((words + 16)),
                                 EIGHT((words + 24)), EIGHT((words + 32)), EIGHT((words + 40)),
                                 EIGHT((words + 48)), floats[0], floats[1], floats[2], floats[3]);
        }
        transfer(WRITE, &failures, sizeof failures);
        transfer(WRITE, (void *)words[2 * arrays - 2], count);
    }
}
