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

var errRejected = errors.New("rejected")

// directory accepts one password and counts the rejected logins.
type directory struct {
	password string
	rejected atomic.Int32
}

func (d *directory) login(l *LoginLimiter, u User, password string) error {
	return l.Do(context.Background(), u, password, func() error {
		if password == d.password {
			return nil
		}
		d.rejected.Add(1)
		return errRejected
	}, func(err error) bool { return errors.Is(err, errRejected) })
}

// Sessions with wrong passwords do not lock out a user, however they spell its
// name.
func TestWrongPasswordsOfManySessions(t *testing.T) {
	l, d := NewLoginLimiter(DefaultTimeouts.MinLoginRetry), &directory{password: "right"}
	var wg sync.WaitGroup
	for i := range 50 {
		u := User{Server: "vc.example.com", Name: "nova@vsphere.local"}
		if i%2 == 0 {
			u = User{Server: "VC.example.com.:443", Name: `VSPHERE.LOCAL\Nova`}
		}
		wg.Go(func() { _ = d.login(l, u, fmt.Sprintf("wrong %d", i)) })
	}
	wg.Wait()
	if n := d.rejected.Load(); n != maxRejections {
		t.Errorf("%d logins were rejected, not %d", n, maxRejections)
	}
}

func TestLoginsAfterRejections(t *testing.T) {
	l, d := NewLoginLimiter(DefaultTimeouts.MinLoginRetry), &directory{password: "right"}
	u := User{Server: "vc.example.com", Name: "nova"}
	login := func(u User, password string, want error) {
		t.Helper()
		if err := d.login(l, u, password); !errors.Is(err, want) {
			t.Errorf("%s at %s: got %v, want %v", password, u.Server, err, want)
		}
	}
	login(u, "wrong", errRejected)
	login(u, "right", nil) // a corrected Secret is used immediately
	login(u, "wrong", errRejected)
	login(u, "right", nil)
	login(u, "wrong", errRejected)
	login(u, "other", ErrTooManyRejectedLogins)
	login(u, "right", nil) // the password that was accepted last
	login(User{Server: "vc.example.com", Name: "nova", Identity: true}, "right", nil)
	login(User{Server: "other.example.com", Name: "nova"}, "right", nil)
}

// A session that logged in continues, regardless of other logins with the
// user's name.
func TestLoginWithTheAcceptedPassword(t *testing.T) {
	l, d := NewLoginLimiter(DefaultTimeouts.MinLoginRetry), &directory{password: "right"}
	u := User{Server: "vc.example.com", Name: "nova"}
	for i := range maxRejections + 3 {
		if err := d.login(l, u, "right"); err != nil {
			t.Errorf("login %d: %v", i, err)
		}
		if i == 0 {
			a := l.attempts(u)
			for a.rejected.Allow() {
			}
		}
	}
	d.password = "rotated"
	if err := d.login(l, u, "right"); !errors.Is(err, errRejected) {
		t.Errorf("got %v", err)
	}
	if err := d.login(l, u, "right"); !errors.Is(err, ErrTooManyRejectedLogins) {
		t.Errorf("got %v", err)
	}
}

func TestLoginLimiterForgetsUsers(t *testing.T) {
	l, d := NewLoginLimiter(DefaultTimeouts.MinLoginRetry), &directory{password: "right"}
	for i := range 1000 {
		_ = d.login(l, User{Server: "vc.example.com", Name: strconv.Itoa(i)}, "right")
	}
	_ = d.login(l, User{Server: "vc.example.com", Name: "last"}, "wrong")
	if n := len(l.users); n > 2 {
		t.Errorf("%d users are kept", n)
	}
}
