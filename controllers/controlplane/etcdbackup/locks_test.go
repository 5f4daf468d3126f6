package etcdbackup

import "testing"

// One bucket of a namespace is in use at a time, and namespaces do not wait for
// each other.
func TestOneLockPerNamespace(t *testing.T) {
	var locks namespaceLocks
	done, ok := locks.tryLock("blue")
	if !ok {
		t.Fatal("the lock of blue is free, but tryLock failed")
	}
	if _, ok := locks.tryLock("blue"); ok {
		t.Error("blue has two namespaceLocks")
	}
	if _, ok := locks.tryLock("red"); !ok {
		t.Error("red waits for blue")
	}
	done()
	if _, ok := locks.tryLock("blue"); !ok {
		t.Error("the lock of blue was released, but tryLock failed")
	}
}
