/* pool.h - the threads of the numpy API. */
#ifndef MMK_POOL_H
#define MMK_POOL_H
#include "mmk.h"

/* The `parallel_for` of a call whose `front_end` points at the number of threads that it may use, an int32_t. */
void mmk_pool_run(mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks);

/* Returns whether the calling thread is one of the pool's. */
int mmk_is_pool_thread(void);
#endif
