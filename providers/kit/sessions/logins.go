package sessions

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// maxRejections is the maximum number of rejected logins of one user in a row.
// vCenter locks a user out after five within three minutes.
const maxRejections = 3

// ErrTooManyRejectedLogins is returned for a login that is not sent, because other
// logins of the same user were rejected shortly before.
var ErrTooManyRejectedLogins = errors.New("logins of this user were rejected, and more of them would lock the user out: " +
	"waiting some minutes before the next attempt")

// User is a user of a hypervisor whose logins are counted together.
type User struct {
	// Server is the address or the ID of the hypervisor.
	Server string
	Name   string
	// Identity is set if the password is that of a cluster-scoped identity.
	// Such logins are counted separately, so that Secrets in the namespaces of
	// tenants cannot block them.
	Identity bool
}

// normalize returns u with normalized names: servers and directories ignore the
// case, and domain\name is name@domain.
func (u User) normalize() User {
	u.Server = Canonical(u.Server)
	u.Name = strings.ToLower(u.Name)
	if domain, name, ok := strings.Cut(u.Name, `\`); ok {
		u.Name = name + "@" + domain
	}
	return u
}

// LoginLimiter limits the rejected logins of each user, over all sessions: a tenant
// that writes wrong passwords with the name of a shared user must not lock that
// user out.
type LoginLimiter struct {
	// refill is the time until one more login may be rejected.
	refill time.Duration

	mu    sync.Mutex
	users map[User]*attempts
}

// attempts are the logins of one user.
type attempts struct {
	// inProgress is held by the login in progress.
	inProgress chan struct{}
	rejected   *rate.Limiter
	// accepted is the hash of the last accepted password.
	accepted [sha256.Size]byte
}

// NewLoginLimiter returns Logins without rejected logins, for sessions that repeat a
// rejected login after first at the earliest.
func NewLoginLimiter(first time.Duration) *LoginLimiter {
	return &LoginLimiter{refill: 2 * first, users: map[User]*attempts{}}
}

// Do logs u in, one login at a time. It returns ErrTooManyRefusals and does not
// call login if too many logins were rejected shortly before, unless the
// password is the last accepted one. The function rejected reports whether an
// error of login is a rejection of the credentials.
func (l *LoginLimiter) Do(ctx context.Context, u User, password string, login func() error, rejected func(error) bool) error {
	a := l.attempts(u.normalize())
	select {
	case a.inProgress <- struct{}{}:
		defer func() { <-a.inProgress }()
	case <-ctx.Done():
		return ctx.Err()
	}
	hash := sha256.Sum256([]byte(password))
	if hash != a.accepted && a.rejected.Tokens() < 1 {
		return ErrTooManyRejectedLogins
	}
	err := login()
	switch {
	case err == nil:
		a.accepted = hash
	case rejected(err):
		if hash == a.accepted {
			a.accepted = [sha256.Size]byte{}
		}
		a.rejected.Allow()
	}
	return err
}

// Guard returns a function that logs u in as Do does. Its error names the endpoint if no
// login was sent.
func (l *LoginLimiter) Guard(u User, password, endpoint string, rejected func(error) bool) func(ctx context.Context, login func() error) error {
	return func(ctx context.Context, login func() error) error {
		err := l.Do(ctx, u, password, login, rejected)
		if errors.Is(err, ErrTooManyRejectedLogins) {
			return hypervisor.Failure(infrav1.CredentialsInvalidReason, "%s: %w", endpoint, err)
		}
		return err
	}
}

// attempts returns the logins of a user. It drops users without a rejected
// login whenever it adds a new one.
func (l *LoginLimiter) attempts(u User) *attempts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.users[u]; ok {
		return a
	}
	for other, a := range l.users {
		if len(a.inProgress) == 0 && a.rejected.Tokens() >= maxRejections {
			delete(l.users, other)
		}
	}
	a := &attempts{inProgress: make(chan struct{}, 1), rejected: rate.NewLimiter(rate.Every(l.refill), maxRejections)}
	l.users[u] = a
	return a
}
