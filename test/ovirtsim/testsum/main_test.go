package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	events := `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/sub"}
{"Action":"fail","Test":"TestA/sub"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:1: it broke\n"}
{"Action":"output","Test":"TestA","Output":"    retry.go:1: tidied\n"}
{"Action":"fail","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"pass","Test":"TestB"}
{"Action":"run","Test":"ExampleC"}
{"Action":"pass","Test":"ExampleC"}
{"Action":"run","Test":"TestD"}
{"Action":"run","Test":"TestE"}
{"Action":"skip","Test":"TestE"}
`
	s, err := read(strings.NewReader(events))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s.write(&out)
	want := `fail: TestA: a_test.go:1: it broke
fail: TestD: no message
skip: TestE: no message
total: passed=1 failed=2 skipped=1
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
