package enrollment

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestRecord(t *testing.T) {
	folder := t.TempDir()
	first := Request{Identity: node, Key: "aa"}
	for range 2 {
		if err := Record(folder, first); err != nil {
			t.Fatal(err)
		}
	}
	if err := Record(folder, Request{Identity: node, Key: "bb"}); err == nil || !strings.Contains(err.Error(), "used already") {
		t.Errorf("got error %v for another key", err)
	}
	if err := Record(folder, Request{Identity: with(func(i *Identity) { i.Certname = "other" }), Key: "bb"}); err != nil {
		t.Errorf("another node is refused: %v", err)
	}
	if err := Record(folder+"/missing", first); err == nil {
		t.Error("signed without a record")
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder has %v, want one file for each node (%v)", left, err)
	}
}

func TestRecordOneOfMany(t *testing.T) {
	folder := t.TempDir()
	var (
		requests sync.WaitGroup
		mutex    sync.Mutex
		recorded int
	)
	for n := range 20 {
		requests.Go(func() {
			if Record(folder, Request{Identity: node, Key: strconv.Itoa(n)}) == nil {
				mutex.Lock()
				recorded++
				mutex.Unlock()
			}
		})
	}
	requests.Wait()
	if recorded != 1 {
		t.Errorf("%d keys were recorded for one token", recorded)
	}
}
