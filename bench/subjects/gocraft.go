// No-ops with github.com/gocraft/work, for bench/subjects/gocraft_.py:
//
//	gocraft enqueue N    sends N no-ops one by one to five queues, prints the seconds it took
//	gocraft work N       runs them with N goroutines until it is told to stop
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

const namespace, queues = "bench", 5

type context struct{}

// slot is this process's number in the shared file of bench/counter.py; the first number counts the slots.
func slot(path string) *uint64 {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(err)
	info, err := file.Stat()
	must(err)
	must(syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	defer syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	bytes, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	taken := binary.LittleEndian.Uint64(bytes) + 1
	binary.LittleEndian.PutUint64(bytes, taken)
	return (*uint64)(unsafe.Pointer(&bytes[8*(1+(taken-1)%(uint64(len(bytes))/8-1))]))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	number, err := strconv.Atoi(os.Args[2])
	must(err)
	pool := &redis.Pool{MaxIdle: 100, Dial: func() (redis.Conn, error) { return redis.DialURL(os.Getenv("BENCH_STORE")) }}
	if os.Args[1] == "enqueue" {
		enqueuer := work.NewEnqueuer(namespace, pool)
		send := func(n int) {
			for i := 0; i < n; i++ {
				_, err := enqueuer.Enqueue("q"+strconv.Itoa(i%queues), work.Q{"number": i})
				must(err)
			}
		}
		send(200) // connections are there before the clock starts
		started := time.Now()
		send(number)
		fmt.Println(time.Since(started).Seconds())
		return
	}
	counter := slot(os.Getenv("BENCH_COUNTER"))
	workers := work.NewWorkerPool(context{}, uint(number), namespace, pool)
	for i := 0; i < queues; i++ {
		workers.Job("q"+strconv.Itoa(i), func(*work.Job) error {
			atomic.AddUint64(counter, 1)
			return nil
		})
	}
	workers.Start()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	workers.Stop()
}
