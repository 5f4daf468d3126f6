package controlplane

import "testing"

func TestLeaderTransfers(t *testing.T) {
	c := &leaderTransfers{}
	for range maxTransfers - 1 {
		c.note("a", 1)
	}
	c.note("b", 1)
	if c.members("a")[1] {
		t.Error("a leadership is given up too soon")
	}
	c.note("a", 1)
	if !c.members("a")[1] || c.members("b")[1] || c.members("a")[2] {
		t.Errorf("a: %v, b: %v", c.members("a"), c.members("b"))
	}
	c.forget("a", 1)
	if c.members("a")[1] {
		t.Error("a member that was removed is remembered")
	}
	c.Forget("b")
	if _, known := c.Get("b"); known {
		t.Error("a deleted control plane has an entry")
	}
}
