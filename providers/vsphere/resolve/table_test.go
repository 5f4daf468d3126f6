package resolve

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25"
)

// directSession sends no request.
type directSession struct{ session }

func (directSession) Call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	return request(ctx, nil)
}

// A caller does not get an old result that may have changed. A recent result
// needs one request only.
func TestExpiredResultsAreReadAgain(t *testing.T) {
	g := NewWithT(t)
	now, asked := time.Now(), 0
	c := &Cache{Now: func() time.Time { return now }, session: directSession{}}
	read := func(context.Context, *vim25.Client) (int, error) { asked++; return asked, nil }
	aging, lasting := table[string, int]{ages: true}, table[string, int]{}
	for _, tt := range []struct {
		passed time.Duration
		want   int
	}{{0, 1}, {2 * MaxAge, 2}, {0, 2}, {MaxAge / 2, 2}} {
		now = now.Add(tt.passed)
		g.Expect(aging.get(t.Context(), c, "news", read)).To(Equal(tt.want))
		g.Expect(asked).To(Equal(tt.want))
	}
	first, err := lasting.get(t.Context(), c, "news", read)
	g.Expect(err).NotTo(HaveOccurred())
	now = now.Add(2 * MaxAge)
	g.Expect(lasting.get(t.Context(), c, "news", read)).To(Equal(first))
}

// The result of a request that was sent before all results were dropped is not
// kept.
func TestResultOfAnEarlierRequestIsNotKept(t *testing.T) {
	g := NewWithT(t)
	c := &Cache{Now: time.Now, session: directSession{}}
	var names table[string, int]
	g.Expect(names.get(t.Context(), c, "n", func(context.Context, *vim25.Client) (int, error) {
		names.dropAll()
		return 1, nil
	})).To(Equal(1))
	g.Expect(names.get(t.Context(), c, "n", func(context.Context, *vim25.Client) (int, error) { return 2, nil })).To(Equal(2))
	names.drop("n")
	g.Expect(names.get(t.Context(), c, "n", func(context.Context, *vim25.Client) (int, error) { return 3, nil })).To(Equal(3))
}
