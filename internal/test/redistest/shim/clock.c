/*
 * clock.c: a wall clock that a test can step, for LD_PRELOAD.
 *
 * The environment names a file of eight bytes in HOLDFAST_CLOCK: an int64 in the
 * byte order of the machine, the microseconds to add to the wall clock. The file
 * is mapped, so writing to it is the step, and nothing has to be restarted.
 *
 * Only the wall clock moves and CLOCK_MONOTONIC is left alone, as by an operator
 * who sets the clock. (libfaketime does not start together with the jemalloc of
 * Debian's redis-server.)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_us;

__attribute__((constructor)) static void map_offset(void)
{
	const char *name = getenv("HOLDFAST_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *page = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED)
		offset_us = page;
}

static int shifted(clockid_t clock, struct timespec *ts)
{
	if (syscall(SYS_clock_gettime, clock, ts) != 0)
		return -1;
	/* Before the constructor has run there is no offset: malloc asks for the time. */
	if (offset_us == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return 0;
	int64_t us = *offset_us;
	ts->tv_sec += us / 1000000;
	ts->tv_nsec += us % 1000000 * 1000;
	if (ts->tv_nsec < 0) {
		ts->tv_sec--;
		ts->tv_nsec += 1000000000;
	} else if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	return shifted(clock, ts);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;
	(void)tz;
	if (shifted(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec ts;
	if (shifted(CLOCK_REALTIME, &ts) != 0)
		return -1;
	if (out != NULL)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
