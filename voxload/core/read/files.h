/* Files that are read whole or in part, without Python between the calls of the system. */
#ifndef VOXLOAD_FILES_H
#define VOXLOAD_FILES_H

#include "paste/paste.h"

/* A chunk that is a file of its own: where its name begins, the bytes wanted of it, and its rows in the plan. */
struct file_job {
    uint64_t name, start, stop, begin, end;
};

/* Read `size` bytes of an open file to `to`; tells whether all came. */
bool read_at(int descriptor, uint8_t *to, uint64_t size, uint64_t offset);

/* Read and paste files of `size` bytes each, by way of `chunk`; `done` becomes 1 for each that was pasted. */
void paste_files(const char *names, const struct file_job *jobs, size_t count, const struct row *rows, uint8_t *chunk,
                 uint64_t size, struct form form, uint8_t *done);

/* Read a file into `buffer` and return its size; nothing is read where it is longer than `room`. -1 where it cannot be
   opened or did not come whole. */
int64_t load_file(const char *name, uint8_t *buffer, uint64_t room);

#endif
