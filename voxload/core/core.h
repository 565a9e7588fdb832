/* What Python calls: plain functions of numbers and addresses, which hold no lock of the interpreter and know no object
   of it. Whoever calls one has checked every extent, and keeps the memory alive until it returns. */
#ifndef VOXLOAD_CORE_H
#define VOXLOAD_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#endif
