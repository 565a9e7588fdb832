/* When and by which group every sample is used, as far as that is known. */
#include "copies.h"
#include "core.h"

/* Add the uses of each sample in one epoch. */
EXPORT void count_uses(const int64_t *order, uint64_t count, int64_t *counts)
{
    for (uint64_t place = 0; place < count; place++)
        if (order[place] >= 0)
            counts[order[place]]++;
}

/* Enter the uses of one epoch, each at its sample's next place; `order` has groups x steps x batch samples. */
EXPORT void enter_uses(const int64_t *order, uint64_t groups, uint64_t steps, uint64_t batch, int64_t first,
                       int64_t *places, struct use *uses)
{
    for (uint64_t step = 0; step < steps; step++)
        for (uint64_t group = 0; group < groups; group++) {
            const int64_t *const samples = order + (group * steps + step) * batch;
            for (uint64_t place = 0; place < batch; place++)
                if (samples[place] >= 0)
                    uses[places[samples[place]]++] = (struct use){first + (int64_t)step, (int64_t)group};
        }
}

/* Find, for each of `steps` steps, the first use that ends a pause between two uses of a sample that begins no
   earlier. Each sample's uses begin at one of the bounds and end at the next. */
EXPORT void find_pauses(const struct use *uses, const int64_t *bounds, uint64_t samples, int64_t first, int64_t *ends,
                        uint64_t steps)
{
    for (uint64_t sample = 0; sample < samples; sample++)
        for (int64_t use = bounds[sample]; use + 1 < bounds[sample + 1]; use++) {
            int64_t *const end = &ends[uses[use].step - first];
            if (uses[use + 1].step < *end)
                *end = uses[use + 1].step;
        }
    for (uint64_t step = steps; step-- > 1;)
        if (ends[step] < ends[step - 1])
            ends[step - 1] = ends[step];
}
