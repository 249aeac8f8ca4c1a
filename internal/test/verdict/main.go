// Command verdict says of the failures of a run of tests whether they are defects.
//
//	verdict watch FILE        writes to FILE, second by second, whether the machine let programs run
//	verdict judge TESTS FILE        judges a run of go test -json, in which failures ran once more, alone
//
// It prints a line for each test that failed, "red: ..." or "flaky: ...", and exits with 1 if one is red, with
// 3 if all that failed is the race detector itself. A test that fails at first and then passes by itself is
// flaky only if it is about time and the machine was late, which [judge] is strict about: a lock that has two
// holders once in a hundred runs has two holders.
package main

import (
	"fmt"
	"os"
)

func main() {
	err := fmt.Errorf("usage: verdict watch FILE | verdict judge TESTS FILE")
	switch {
	case len(os.Args) == 3 && os.Args[1] == "watch":
		err = watch(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "judge":
		var code int
		if code, err = judgeFiles(os.Stdout, os.Args[2], os.Args[3]); err == nil {
			os.Exit(code)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
