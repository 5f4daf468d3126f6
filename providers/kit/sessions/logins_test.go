package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

var errRefused = errors.New("refused")

// directory accepts one password and counts the rejected logins.
type directory struct {
	password string
	refused  atomic.Int32
}

func (d *directory) login(l *Logins, u User, password string) error {
	return l.Do(context.Background(), u, password, func() error {
		if password == d.password {
			return nil
		}
		d.refused.Add(1)
		return errRefused
	}, func(err error) bool { return errors.Is(err, errRefused) })
}

// Sessions with wrong passwords do not lock out a user, however they spell its
// name.
func TestWrongPasswordsOfManySessions(t *testing.T) {
	l, d := NewLogins(Usually.FirstLogin), &directory{password: "right"}
	var wg sync.WaitGroup
	for i := range 50 {
		u := User{Server: "vc.example.com", Name: "nova@vsphere.local"}
		if i%2 == 0 {
			u = User{Server: "VC.example.com.:443", Name: `VSPHERE.LOCAL\Nova`}
		}
		wg.Go(func() { _ = d.login(l, u, fmt.Sprintf("wrong %d", i)) })
	}
	wg.Wait()
	if n := d.refused.Load(); n != refusals {
		t.Errorf("%d logins were refused, not %d", n, refusals)
	}
}

func TestLoginsAfterRefusals(t *testing.T) {
	l, d := NewLogins(Usually.FirstLogin), &directory{password: "right"}
	u := User{Server: "vc.example.com", Name: "nova"}
	login := func(u User, password string, want error) {
		t.Helper()
		if err := d.login(l, u, password); !errors.Is(err, want) {
			t.Errorf("%s at %s: got %v, want %v", password, u.Server, err, want)
		}
	}
	login(u, "wrong", errRefused)
	login(u, "right", nil) // a corrected Secret is used immediately
	login(u, "wrong", errRefused)
	login(u, "right", nil)
	login(u, "wrong", errRefused)
	login(u, "other", ErrTooManyRefusals)
	login(u, "right", nil) // the password that was accepted last
	login(User{Server: "vc.example.com", Name: "nova", Identity: true}, "right", nil)
	login(User{Server: "other.example.com", Name: "nova"}, "right", nil)
}

// A session that logged in continues, regardless of other logins with the
// user's name.
func TestLoginWithTheAcceptedPassword(t *testing.T) {
	l, d := NewLogins(Usually.FirstLogin), &directory{password: "right"}
	u := User{Server: "vc.example.com", Name: "nova"}
	for i := range refusals + 3 {
		if err := d.login(l, u, "right"); err != nil {
			t.Errorf("login %d: %v", i, err)
		}
		if i == 0 {
			a := l.attempts(u)
			for a.refused.Allow() {
			}
		}
	}
	d.password = "rotated"
	if err := d.login(l, u, "right"); !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
	if err := d.login(l, u, "right"); !errors.Is(err, ErrTooManyRefusals) {
		t.Errorf("got %v", err)
	}
}

func TestLoginsForgetUsers(t *testing.T) {
	l, d := NewLogins(Usually.FirstLogin), &directory{password: "right"}
	for i := range 1000 {
		_ = d.login(l, User{Server: "vc.example.com", Name: strconv.Itoa(i)}, "right")
	}
	_ = d.login(l, User{Server: "vc.example.com", Name: "last"}, "wrong")
	if n := len(l.users); n > 2 {
		t.Errorf("%d users are kept", n)
	}
}
