// What Go programs do with a linear namespace, by go-redis: client URL [URL ...], one of each node.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		panic(err)
	}
}

func expect[T comparable](got T, err error, want T) {
	must(err)
	if got != want {
		panic(fmt.Sprintf("%v is not %v", got, want))
	}
}

func main() {
	ctx := context.Background()
	var at []*redis.Client
	for _, url := range os.Args[1:] {
		options, err := redis.ParseURL(url)
		must(err)
		at = append(at, redis.NewClient(options))
	}
	a, b := at[0], at[len(at)-1]
	must(a.FlushDB(ctx).Err())
	must(a.Set(ctx, "k", "v", 0).Err())
	got, err := b.Get(ctx, "k").Result()
	expect(got, err, "v")
	set, err := b.SetNX(ctx, "k", "x", 0).Result()
	expect(set, err, false)
	length, err := a.RPush(ctx, "l", "a", "b", "c").Result()
	expect(length, err, int64(3))
	item, err := b.LMove(ctx, "l", "m", "LEFT", "RIGHT").Result()
	expect(item, err, "a")
	must(a.HSet(ctx, "h", "f", "1", "g", "2").Err())
	var fields int
	scan := b.HScan(ctx, "h", 0, "*", 1).Iterator()
	for scan.Next(ctx) {
		fields++
	}
	must(scan.Err())
	expect(fields, nil, 4)
	// A counter by optimistic locking, from all sides.
	var all sync.WaitGroup
	for n := 0; n < 30; n++ {
		all.Add(1)
		go func(client *redis.Client) {
			defer all.Done()
			for {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					now, err := tx.Get(ctx, "count").Int()
					must(err)
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						return pipe.Set(ctx, "count", now+1, 0).Err()
					})
					return err
				}, "count")
				if err == nil {
					return
				}
				if !errors.Is(err, redis.TxFailedErr) {
					panic(err)
				}
			}
		}(at[n%len(at)])
	}
	all.Wait()
	count, err := b.Get(ctx, "count").Int()
	expect(count, err, 30)
	fmt.Println("go-redis is content")
}
