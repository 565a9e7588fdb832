/* Functions that are compiled for newer processors too; which of them runs is found out when they are loaded. */
#ifndef VOXLOAD_CLONES_H
#define VOXLOAD_CLONES_H

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

#endif
