package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports lie below those that the system gives to connections, which others
// make all the time, and above those that some tests have fixed.
const first, count = 22000, 8000

// returned are the ports that were returned. Their users may not listen on them
// yet.
var returned sync.Map

// Free returns a port of 127.0.0.1 that is unused, for UDP and TCP. It fails if
// there is none.
func Free(ctx context.Context) (string, error) {
	var last error
	for range 1000 {
		n := first + rand.IntN(count)
		if _, again := returned.LoadOrStore(n, true); again {
			continue
		}
		port := strconv.Itoa(n)
		if last = probe(ctx, net.JoinHostPort("127.0.0.1", port)); last == nil {
			return port, nil
		}
	}
	return "", fmt.Errorf("finding a free port: %w", last)
}

// FreeAddress returns 127.0.0.1 with a port as of Free.
func FreeAddress(ctx context.Context) (string, error) {
	port, err := Free(ctx)
	return net.JoinHostPort("127.0.0.1", port), err
}

// probe listens on an address for a moment.
func probe(ctx context.Context, address string) error {
	config := &net.ListenConfig{}
	udp, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	tcp, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(err, udp.Close())
	}
	return errors.Join(tcp.Close(), udp.Close())
}
