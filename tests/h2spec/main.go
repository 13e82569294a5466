// Asks an HTTPS door all questions of h2spec, an outside check of HTTP/2 (RFC 9113's predecessor, RFC 7540) and HPACK, also
// the strict ones.
//
//	go run . HOST PORT
//
// Standard output ends with a line for each question that was answered otherwise than expected, `FAILED http2/5.1/9: ...`, and
// `ASKED 146`. Ends with status 0 if all were asked.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

func main() {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	c := &config.Config{
		Host: os.Args[1], Port: port, Path: "/", Timeout: 2 * time.Second, MaxHeaderLen: 4000, Strict: true, TLS: true, Insecure: true,
	}
	all := []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()}
	for _, group := range all {
		group.Test(c)
	}
	fmt.Println()
	asked := 0
	for _, group := range all {
		asked += failed(group)
	}
	fmt.Println("ASKED", asked)
}

// failed tells those of a group that failed, and gives how many were asked.
func failed(group *spec.TestGroup) int {
	asked := 0
	for _, test := range append(group.Tests, group.StrictTests...) {
		if test.Result == nil {
			continue
		}
		asked++
		if test.Result.Failed {
			why := strings.ReplaceAll(test.Result.Error.Error(), "\n", "; ")
			fmt.Printf("FAILED %s/%d: %s (%s)\n", group.ID(), test.Result.Sequence, test.Desc, why)
		}
	}
	for _, below := range group.Groups {
		asked += failed(below)
	}
	return asked
}
