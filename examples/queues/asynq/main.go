// asynq, as it comes: a queue, and a worker that does two jobs at a time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

// redis is where the queue is: `redis://user:password@host:port`.
func redis() asynq.RedisClientOpt {
	text := os.Getenv("QUEUE_URL")
	if text == "" {
		text = "redis://127.0.0.1:6379"
	}
	at, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	password, _ := at.User.Password()
	return asynq.RedisClientOpt{Addr: at.Host, Username: at.User.Username(), Password: password}
}

// did leaves a line for each time that a job ran; one write, so that lines of several workers do not mix.
func did(number string) error {
	path := os.Getenv("DONE")
	if path == "" {
		fmt.Println("job", number)
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(number + "\n")
	return err
}

func work() error {
	server := asynq.NewServer(redis(), asynq.Config{Concurrency: 2, LogLevel: asynq.ErrorLevel})
	return server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		return did(string(task.Payload()))
	}))
}

// put puts jobs 1 to count. One of which nobody knows whether it was taken is put again, and told.
func put(count int) {
	client := asynq.NewClient(redis())
	defer client.Close()
	again := []int{}
	for number := 1; number <= count; number++ {
		for {
			name := strconv.Itoa(number)
			task := asynq.NewTask("job", []byte(name))
			_, err := client.Enqueue(task, asynq.TaskID(name), asynq.Retention(time.Hour), asynq.MaxRetry(5))
			// It was put before its answer was lost.
			if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
				break
			}
			fmt.Fprintln(os.Stderr, number, err)
			again = append(again, number)
			time.Sleep(100 * time.Millisecond)
		}
	}
	tell(map[string]any{"again": again})
}

// left tells which jobs the library still has, waiting, begun or failed.
func left() error {
	inspector := asynq.NewInspector(redis())
	defer inspector.Close()
	list := map[string]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		"pending": inspector.ListPendingTasks, "active": inspector.ListActiveTasks,
		"scheduled": inspector.ListScheduledTasks, "retry": inspector.ListRetryTasks,
		"archived": inspector.ListArchivedTasks,
	}
	numbers, waiting := []int{}, 0
	for state, tasks := range list {
		for page := 1; ; page++ {
			found, err := tasks("default", asynq.PageSize(1000), asynq.Page(page))
			if errors.Is(err, asynq.ErrQueueNotFound) {
				break
			}
			if err != nil {
				return err
			}
			for _, task := range found {
				number, err := strconv.Atoi(string(task.Payload))
				if err != nil {
					return err
				}
				numbers = append(numbers, number)
			}
			if state == "pending" {
				waiting += len(found)
			}
			if len(found) < 1000 {
				break
			}
		}
	}
	slices.Sort(numbers)
	tell(map[string]any{"left": slices.Compact(numbers), "waiting": waiting})
	return nil
}

func tell(what map[string]any) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "work":
		err = work()
	case len(os.Args) == 3 && os.Args[1] == "put":
		var count int
		if count, err = strconv.Atoi(os.Args[2]); err == nil {
			put(count)
		}
	case len(os.Args) == 2 && os.Args[1] == "left":
		err = left()
	default:
		err = errors.New("say work, put COUNT, or left")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
