/* The module: each function checks the extents of its arrays, lets go of the interpreter and works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "bits.h"
#include "files.h"
#include "paste.h"
#include "pool.h"
#include "read.h"

/* The memory of a call's arrays, which are contiguous. */
enum { MOST_ARRAYS = 5 };
struct arrays {
    Py_buffer views[MOST_ARRAYS];
    int count;
};

static void release(struct arrays *held)
{
    while (held->count)
        PyBuffer_Release(&held->views[--held->count]);
}

/* Hold the memory of an array of whole items; NULL with an error set where it is none, and all is let go. */
static void *hold(struct arrays *held, PyObject *object, bool is_written, size_t item, size_t *count)
{
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, is_written ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
        release(held);
        return NULL;
    }
    held->count++;
    if ((size_t)view->len % item) {
        PyErr_Format(PyExc_ValueError, "%zd bytes where items of %zu belong", view->len, item);
        release(held);
        return NULL;
    }
    *count = (size_t)view->len / item;
    static char nothing;
    return view->buf ? view->buf : &nothing;
}

static bool has_room(struct arrays *held, uint64_t begin, uint64_t end, size_t count)
{
    if (begin <= end && end <= count)
        return true;
    PyErr_Format(PyExc_IndexError, "rows %llu to %llu of %zu", (unsigned long long)begin, (unsigned long long)end, count);
    release(held);
    return false;
}

static bool is_width(uint64_t width)
{
    if (width == 1 || width == 2 || width == 4 || width == 8)
        return true;
    PyErr_Format(PyExc_ValueError, "elements of %llu bytes", (unsigned long long)width);
    return false;
}

static PyObject *py_tabulate(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *table, *boxes, *chunk;
    unsigned long long width;
    if (!PyArg_ParseTuple(args, "OOOK", &table, &boxes, &chunk, &width) || !is_width(width))
        return NULL;
    struct arrays held = {.count = 0};
    size_t rows, wanted, grids;
    struct row *to = hold(&held, table, true, sizeof *to, &rows);
    const struct wanted *from = to ? hold(&held, boxes, false, sizeof *from, &wanted) : NULL;
    const struct grid *grid = from ? hold(&held, chunk, false, sizeof *grid, &grids) : NULL;
    if (!grid)
        return NULL;
    if (grids != 1 || rows != count_rows(from, wanted, grid)) {
        release(&held);
        return PyErr_Format(PyExc_ValueError, "a table of %zu rows", rows);
    }
    tabulate(to, from, wanted, grid, width); /* too short to let go of the interpreter for */
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_paste(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *source, *table;
    unsigned long long begin, end, width;
    int is_shuffled, is_swapped;
    if (!PyArg_ParseTuple(args, "OOKKKpp", &source, &table, &begin, &end, &width, &is_shuffled, &is_swapped) || !is_width(width))
        return NULL;
    struct arrays held = {.count = 0};
    size_t size, rows;
    const uint8_t *chunk = hold(&held, source, false, 1, &size);
    const struct row *row = chunk ? hold(&held, table, false, sizeof *row, &rows) : NULL;
    if (!row || !has_room(&held, begin, end, rows))
        return NULL;
    const struct form form = {width, is_shuffled, is_swapped};
    Py_BEGIN_ALLOW_THREADS
    paste(chunk, size, row + begin, end - begin, form);
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_paste_mapped(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *table;
    unsigned long long begin, end, width;
    int is_swapped;
    if (!PyArg_ParseTuple(args, "OKKKp", &table, &begin, &end, &width, &is_swapped) || !is_width(width))
        return NULL;
    struct arrays held = {.count = 0};
    size_t rows;
    const struct row *row = hold(&held, table, false, sizeof *row, &rows);
    if (!row || !has_room(&held, begin, end, rows))
        return NULL;
    const struct form form = {width, false, is_swapped};
    Py_BEGIN_ALLOW_THREADS
    paste_mapped(row + begin, end - begin, form);
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_paste_cast(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *source, *table;
    unsigned long long begin, end, width;
    int is_shuffled, is_swapped, is_mapped, stored, cast;
    if (!PyArg_ParseTuple(args, "OOKKKpppii", &source, &table, &begin, &end, &width, &is_shuffled, &is_swapped, &is_mapped,
                          &stored, &cast) || !is_width(width))
        return NULL;
    static const uint8_t widths[STORED_TYPES] = {1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
    if (stored < 0 || stored >= STORED_TYPES || cast < 0 || cast >= CASTS || widths[stored] != width)
        return PyErr_Format(PyExc_ValueError, "type %d of %llu bytes as %d", stored, width, cast);
    struct arrays held = {.count = 0};
    size_t size, rows;
    const uint8_t *chunk = hold(&held, source, false, 1, &size);
    const struct row *row = chunk ? hold(&held, table, false, sizeof *row, &rows) : NULL;
    if (!row || !has_room(&held, begin, end, rows))
        return NULL;
    const struct form form = {width, is_shuffled, is_swapped};
    Py_BEGIN_ALLOW_THREADS
    paste_cast(chunk, size, row + begin, end - begin, form, is_mapped, (enum stored)stored, (enum cast)cast);
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_paste_files(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *names, *jobs, *table, *chunk, *done;
    unsigned long long width;
    int is_swapped;
    if (!PyArg_ParseTuple(args, "OOOOKpO", &names, &jobs, &table, &chunk, &width, &is_swapped, &done) || !is_width(width))
        return NULL;
    struct arrays held = {.count = 0};
    size_t letters, count, rows, size, marks;
    const char *name = hold(&held, names, false, 1, &letters);
    const struct file_job *job = name ? hold(&held, jobs, false, sizeof *job, &count) : NULL;
    const struct row *row = job ? hold(&held, table, false, sizeof *row, &rows) : NULL;
    uint8_t *buffer = row ? hold(&held, chunk, true, 1, &size) : NULL;
    uint8_t *mark = buffer ? hold(&held, done, true, 1, &marks) : NULL;
    if (!mark)
        return NULL;
    bool fits = marks >= count && (!count || (letters && !name[letters - 1]));
    for (size_t number = 0; fits && number < count; number++)
        fits = job[number].name < letters && job[number].start <= job[number].stop && job[number].stop <= size &&
               job[number].begin <= job[number].end && job[number].end <= rows;
    if (!fits) {
        release(&held);
        return PyErr_Format(PyExc_IndexError, "%zu jobs beyond their arrays", count);
    }
    const struct form form = {width, false, is_swapped};
    Py_BEGIN_ALLOW_THREADS
    paste_files(name, job, count, row, buffer, size, form, mark);
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_load_file(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *name, *buffer;
    if (!PyArg_ParseTuple(args, "OO", &name, &buffer))
        return NULL;
    struct arrays held = {.count = 0};
    size_t letters, room;
    const char *path = hold(&held, name, false, 1, &letters);
    uint8_t *to = path ? hold(&held, buffer, true, 1, &room) : NULL;
    if (!to)
        return NULL;
    if (!letters || path[letters - 1]) {
        release(&held);
        return PyErr_Format(PyExc_ValueError, "a name that no zero byte ends");
    }
    int64_t size;
    Py_BEGIN_ALLOW_THREADS
    size = load_file(path, to, room);
    Py_END_ALLOW_THREADS
    release(&held);
    return PyLong_FromLongLong(size);
}

static PyObject *py_unpack_bits(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *stream, *out;
    unsigned int bits;
    unsigned long long add, last, width;
    int has_last;
    if (!PyArg_ParseTuple(args, "OIKpKOK", &stream, &bits, &add, &has_last, &last, &out, &width) || !is_width(width))
        return NULL;
    struct arrays held = {.count = 0};
    size_t size, count;
    const uint8_t *from = hold(&held, stream, false, 1, &size);
    uint8_t *to = from ? hold(&held, out, true, width, &count) : NULL;
    if (!to)
        return NULL;
    if (!bits || bits > 8 * width || count > SIZE_MAX / bits || (count * bits + 7) / 8 > size) {
        release(&held);
        return PyErr_Format(PyExc_ValueError, "%zu bytes for %zu numbers of %u bits", size, count, bits);
    }
    const uint64_t largest = last;
    Py_BEGIN_ALLOW_THREADS
    unpack_bits(from, bits, add, has_last ? &largest : NULL, to, width, count);
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *py_walk_blocks(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *data, *places;
    unsigned long long start;
    if (!PyArg_ParseTuple(args, "OOK", &data, &places, &start))
        return NULL;
    struct arrays held = {.count = 0};
    size_t size, count;
    const uint8_t *from = hold(&held, data, false, 1, &size);
    int64_t(*to)[2] = from ? hold(&held, places, true, sizeof *to, &count) : NULL;
    if (!to)
        return NULL;
    int64_t end;
    Py_BEGIN_ALLOW_THREADS
    end = walk_blocks(from, size, start, to, count);
    Py_END_ALLOW_THREADS
    release(&held);
    return PyLong_FromLongLong(end);
}

/* A volume: what is learnt of it once. Its tables lie in the arrays that it holds. */
struct volume_object {
    PyObject_HEAD
    struct volume volume;
    struct arrays held;
};

static PyObject *volume_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *grid, *steps, *offsets, *sizes, *masks;
    unsigned long long width, nbytes, shift;
    int is_swapped, is_shuffled, stored, cast;
    if (keywords && PyDict_Size(keywords))
        return PyErr_Format(PyExc_TypeError, "Volume takes no keywords");
    if (!PyArg_ParseTuple(args, "OKKppOKOOOii", &grid, &width, &nbytes, &is_swapped, &is_shuffled, &steps, &shift, &offsets,
                          &sizes, &masks, &stored, &cast) || !is_width(width))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct volume_object *self = (struct volume_object *)allocate(type, 0);
    if (!self)
        return NULL;
    struct volume *volume = &self->volume;
    size_t grids, count, chunks[3];
    struct arrays held = {.count = 0};
    const struct grid *from = hold(&held, grid, false, sizeof *from, &grids);
    const struct step *step = from ? hold(&held, steps, false, sizeof *step, &count) : NULL;
    if (!step)
        goto failed;
    if (grids != 1 || count > MOST_STEPS) {
        release(&held);
        PyErr_Format(PyExc_ValueError, "%zu grids, %zu steps", grids, count);
        goto failed;
    }
    volume->grid = *from;
    for (size_t place = 0; place < count; place++)
        volume->pipeline.steps[place] = step[place];
    release(&held);
    volume->pipeline.count = count;
    volume->pipeline.shift = shift;
    volume->pipeline.nbytes = nbytes;
    volume->pipeline.is_shuffled = (uint64_t)is_shuffled;
    volume->form = (struct form){width, is_shuffled, is_swapped};
    volume->stored = stored;
    volume->cast = cast;
    volume->offsets = hold(&self->held, offsets, false, sizeof(uint64_t), &chunks[0]);
    volume->sizes = volume->offsets ? hold(&self->held, sizes, false, sizeof(int64_t), &chunks[1]) : NULL;
    volume->masks = volume->sizes ? hold(&self->held, masks, false, sizeof(uint32_t), &chunks[2]) : NULL;
    if (!volume->masks)
        goto failed;
    volume->chunks = chunks[0];
    uint64_t elements = width, cells = 1;
    for (int axis = 0; axis < AXES; axis++) {
        elements *= volume->grid.extent[axis];
        cells *= volume->grid.count[axis];
    }
    if (chunks[1] != chunks[0] || chunks[2] != chunks[0] || cells != chunks[0] || elements != nbytes ||
        cast >= CASTS || (cast >= 0 && (stored < 0 || stored >= STORED_TYPES))) {
        PyErr_Format(PyExc_ValueError, "a grid of %llu chunks of %llu bytes with tables of %zu", (unsigned long long)cells,
                     (unsigned long long)elements, chunks[0]);
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void volume_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    release(&((struct volume_object *)object)->held);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);
    give_back(object);
    Py_DECREF(type);
}

static PyObject *volume_can_read(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    return PyBool_FromLong(can_decode(&((struct volume_object *)object)->volume.pipeline));
}

/* read(descriptor, size of the file, boxes, threads): fill the boxes; None, or what became of each chunk that was not pasted. */
static PyObject *volume_read(PyObject *object, PyObject *args)
{
    const struct volume *volume = &((struct volume_object *)object)->volume;
    PyObject *boxes;
    int descriptor, threads;
    unsigned long long size;
    if (!PyArg_ParseTuple(args, "iKOi", &descriptor, &size, &boxes, &threads))
        return NULL;
    struct arrays held = {.count = 0};
    size_t wanted;
    const struct wanted *box = hold(&held, boxes, false, sizeof *box, &wanted);
    if (!box)
        return NULL;
    const uint64_t count = count_rows(box, wanted, &volume->grid);
    struct row *rows = count < SIZE_MAX / (sizeof *rows + 1) ? malloc(count * (sizeof *rows + 1) + 1) : NULL;
    if (!rows) {
        release(&held);
        return count == UINT64_MAX ? PyErr_Format(PyExc_ValueError, "an empty box") : PyErr_NoMemory();
    }
    uint8_t *outcomes = (uint8_t *)(rows + count);
    Py_BEGIN_ALLOW_THREADS
    tabulate(rows, box, wanted, &volume->grid, volume->form.width);
    if (wanted > 1)
        order_rows(rows, count);
    read_rows(volume, descriptor, size, rows, count, outcomes, threads);
    Py_END_ALLOW_THREADS
    release(&held);
    PyObject *left = NULL;
    for (uint64_t number = 0; number < count; number++) {
        if (outcomes[number] == PASTED || (number && rows[number - 1].chunk == rows[number].chunk))
            continue;
        PyObject *one = Py_BuildValue("Ki", (unsigned long long)rows[number].chunk, (int)outcomes[number]);
        if (!left)
            left = PyList_New(0);
        if (!one || !left || PyList_Append(left, one) < 0) {
            Py_XDECREF(one);
            Py_CLEAR(left);
            free(rows);
            return NULL;
        }
        Py_DECREF(one);
    }
    free(rows);
    if (left)
        return left;
    Py_RETURN_NONE;
}

static PyMethodDef volume_methods[] = {
    {"can_read", volume_can_read, METH_NOARGS, NULL},
    {"read", volume_read, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot volume_slots[] = {
    {Py_tp_new, volume_new}, {Py_tp_dealloc, volume_dealloc}, {Py_tp_methods, volume_methods}, {0, NULL},
};
static PyType_Spec volume_spec = {"voxload.readers._core.Volume", sizeof(struct volume_object), 0, Py_TPFLAGS_DEFAULT, volume_slots};

static PyObject *py_set_decoders(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *addresses;
    if (!PyArg_ParseTuple(args, "O", &addresses))
        return NULL;
    struct arrays held = {.count = 0};
    size_t count;
    const struct decoders *found = hold(&held, addresses, false, sizeof *found, &count);
    if (!found)
        return NULL;
    if (count == 1)
        decoders = *found;
    release(&held);
    if (count != 1)
        return PyErr_Format(PyExc_ValueError, "%zu tables of decoders", count);
    Py_RETURN_NONE;
}

static PyObject *py_end_helpers(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    end_helpers();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_forget_helpers(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    forget_helpers();
    Py_RETURN_NONE;
}

static int execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&volume_spec);
    const int failed = type ? PyModule_AddObjectRef(module, "Volume", type) : -1;
    Py_XDECREF(type);
    return failed;
}

static PyMethodDef methods[] = {
    {"tabulate", py_tabulate, METH_VARARGS, NULL},
    {"paste", py_paste, METH_VARARGS, NULL},
    {"paste_mapped", py_paste_mapped, METH_VARARGS, NULL},
    {"paste_cast", py_paste_cast, METH_VARARGS, NULL},
    {"paste_files", py_paste_files, METH_VARARGS, NULL},
    {"load_file", py_load_file, METH_VARARGS, NULL},
    {"unpack_bits", py_unpack_bits, METH_VARARGS, NULL},
    {"walk_blocks", py_walk_blocks, METH_VARARGS, NULL},
    {"set_decoders", py_set_decoders, METH_VARARGS, NULL},
    {"end_helpers", py_end_helpers, METH_NOARGS, NULL},
    {"forget_helpers", py_forget_helpers, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_core", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
