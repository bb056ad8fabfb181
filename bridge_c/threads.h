/* threads.h - threads, locks and conditions of POSIX and Windows, under one name: what pool.c needs of them. */
#ifndef MMK_THREADS_H
#define MMK_THREADS_H
#include <stdint.h>
#include <time.h>

#ifdef _WIN32
#include <windows.h>

typedef SRWLOCK Mutex;
typedef CONDITION_VARIABLE Condition;
typedef DWORD ThreadResult;
#define THREAD_CALL WINAPI
#define MUTEX_INITIAL SRWLOCK_INIT
#define CONDITION_INITIAL CONDITION_VARIABLE_INIT

static inline int try_lock(Mutex *mutex) { return TryAcquireSRWLockExclusive(mutex); }
static inline void wait_and_lock(Mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline void unlock(Mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void wake_one(Condition *condition) { WakeConditionVariable(condition); }
static inline void wake_all(Condition *condition) { WakeAllConditionVariable(condition); }
static inline void sleep_on(Condition *condition, Mutex *mutex) {
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}
static inline void sleep_at_most(Condition *condition, Mutex *mutex, int milliseconds) {
    SleepConditionVariableSRW(condition, mutex, (DWORD)milliseconds, 0);
}
static inline int start_thread(ThreadResult(THREAD_CALL *function)(void *)) {
    HANDLE thread = CreateThread(NULL, 0, function, NULL, 0, NULL);
    return thread && CloseHandle(thread);
}
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>

typedef pthread_mutex_t Mutex;
typedef pthread_cond_t Condition;
typedef void *ThreadResult;
#define THREAD_CALL
#define MUTEX_INITIAL PTHREAD_MUTEX_INITIALIZER
#define CONDITION_INITIAL PTHREAD_COND_INITIALIZER

static inline int try_lock(Mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
static inline void wait_and_lock(Mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void unlock(Mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void wake_one(Condition *condition) { pthread_cond_signal(condition); }
static inline void wake_all(Condition *condition) { pthread_cond_broadcast(condition); }
static inline void sleep_on(Condition *condition, Mutex *mutex) { pthread_cond_wait(condition, mutex); }
static inline void sleep_at_most(Condition *condition, Mutex *mutex, int milliseconds) {
    struct timespec end;
    timespec_get(&end, TIME_UTC);
    end.tv_nsec += milliseconds * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(condition, mutex, &end);
}
/* Starts a thread that leaves signals to the program's own; returns whether it runs. */
static inline int start_thread(ThreadResult (*function)(void *)) {
    const size_t stack_size = (size_t)1 << 20; /* musl's and macOS's own are too small for some kernels */
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int started = 0;
    if (pthread_attr_init(&attributes)) return 0;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_size);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, &attributes, function, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}
#endif

/* Returns the processor that this thread runs on; -1 if that is not known. */
static inline int current_processor(void) {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

/* Moves this thread to another processor; returns whether there is one that it may use. */
static inline int leave_processor(int processor) {
#ifdef __linux__
    cpu_set_t allowed, remaining;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
    remaining = allowed;
    CPU_CLR(processor, &remaining);
    if (!CPU_COUNT(&remaining) || sched_setaffinity(0, sizeof remaining, &remaining)) return 0;
    sched_setaffinity(0, sizeof allowed, &allowed);
    return 1;
#else
    (void)processor;
    return 0;
#endif
}

/* Lets the other thread of a processor core work while this one waits for an address to change. */
static inline void relax(void) {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__ __volatile__("isb");
#elif defined(_WIN32)
    YieldProcessor();
#endif
}

/* Returns a clock that may jump. */
static inline int64_t microseconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif
