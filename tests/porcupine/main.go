// Judges a history of a real cluster with porcupine, a checker of linearizability that is not ours.
//
//	go run . HISTORY.jsonl
//
// One line per operation: {"process": 1, "op": "set" | "get" | "swap", "key": "k1", "value": "7", "old": "6", "outcome": "ok" |
// "unknown" | "refused", "start": 12, "end": 34} with times in nanoseconds. A swap sets the value and tells the old one. A refused
// operation did not happen, an unknown one may happen at any time after its start. Ends with status 0 if the history is linearizable, 1 if it is not, 2 if it could not be judged.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Process int    `json:"process"`
	Op      string `json:"op"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Old     string `json:"old"`
	Outcome string `json:"outcome"`
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
}

type input struct{ op, key, value string }

// What an operation told of the value that was there; nothing if it has no answer, or none that says so.
type output struct {
	told bool
	old  string
}

// A register per key; each key is judged by itself. The empty value is that of a key that is not there.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(input).key
			keys[key] = append(keys[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range keys {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return "" },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		saw := out.(output)
		right := !saw.told || saw.old == state.(string)
		if in.(input).op == "get" {
			return right, state
		}
		return right, in.(input).value
	},
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if one.Op != "set" && one.Op != "get" && one.Op != "swap" {
			return nil, fmt.Errorf("line %d: operation %q is not known", n, one.Op)
		}
		// A read without an answer says nothing, and what was refused did not happen.
		if one.Outcome == "refused" || (one.Op == "get" && one.Outcome != "ok") {
			continue
		}
		if one.Outcome == "unknown" {
			one.End = math.MaxInt64
		}
		saw := output{told: one.Outcome == "ok" && one.Op != "set", old: one.Old}
		if one.Op == "get" {
			saw.old = one.Value
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Process,
			Input:    input{one.Op, one.Key, one.Value},
			Output:   saw,
			Call:     one.Start,
			Return:   one.End,
		})
	}
	return history, lines.Err()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "name the file with the history")
		os.Exit(2)
	}
	history, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch porcupine.CheckOperationsTimeout(model, history, 60*time.Second) {
	case porcupine.Ok:
		fmt.Printf("%d operations are linearizable\n", len(history))
	case porcupine.Illegal:
		fmt.Printf("%d operations are NOT linearizable\n", len(history))
		os.Exit(1)
	default:
		fmt.Printf("%d operations could not be judged within a minute\n", len(history))
		os.Exit(2)
	}
}
