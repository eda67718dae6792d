/* Runs `checked`: what it prints, and where it fails. */
#include "checked.h"

int main(void)
{
    int32_t x[12] = {3, 1, 4, 1, 5, 9, 2, 6, -5, 3, 5, 8};
    checked_args args = {x, 1, 8};
    int64_t grid[3] = {2, 1, 1};
    deuteron_failure failure;

    if (checked(&args, grid, &failure) != DEUTERON_OK) return 1;
    checked_on_print(deuteron_print_stdout);
    if (checked(&args, grid, &failure) != DEUTERON_OK || checked_failure_text(&failure)) return 2;
    checked_on_print(NULL);
    args.n = 12;
    grid[0] = 3;
    if (checked(&args, grid, NULL) != DEUTERON_ASSERT_FAILED) return 3;
    if (checked(&args, grid, &failure) != DEUTERON_ASSERT_FAILED) return 4;
    printf("%s in program %d\n", checked_failure_text(&failure), (int)failure.program[0]);
    return 0;
}
