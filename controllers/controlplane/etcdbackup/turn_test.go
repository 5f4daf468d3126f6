package etcdbackup

import "testing"

// One bucket of a namespace is in use at a time, and namespaces do not wait for
// each other.
func TestOneTurnPerNamespace(t *testing.T) {
	var turns turns
	done, ok := turns.take("blue")
	if !ok {
		t.Fatal("the turn of blue is free, and it was refused")
	}
	if _, ok := turns.take("blue"); ok {
		t.Error("blue has two turns")
	}
	if _, ok := turns.take("red"); !ok {
		t.Error("red waits for blue")
	}
	done()
	if _, ok := turns.take("blue"); !ok {
		t.Error("the turn of blue is over, and it was refused")
	}
}
