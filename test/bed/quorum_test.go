package bed

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

func TestQuorumWatchTellsALossFromAnElection(t *testing.T) {
	g := NewWithT(t)
	whole := Quorum{Voters: 3, Answering: 3}
	one := Quorum{Voters: 3, Answering: 2}
	lost := Quorum{At: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC), Voters: 3, Answering: 1}
	w := &QuorumWatch{}
	note := func(q Quorum, times int) {
		for range times {
			w.note(q)
		}
	}
	note(whole, 3)
	note(one, 20)
	note(lost, quorumSamples-1)
	note(whole, 1)
	note(lost, quorumSamples-1)
	note(one, 1)
	g.Expect(w.losses).To(BeEmpty(), "it came back in time")
	note(lost, 3*quorumSamples)
	note(one, 1)
	g.Expect(w.losses).To(HaveLen(1))
	g.Expect(w.losses[0].String()).To(MatchRegexp(`^10:00:00: 1 of 3 voters answered, load [0-9.]+$`))
	g.Expect(w.Last().Spare()).To(BeZero())
	g.Expect(whole.Spare()).To(Equal(1))
}

func TestQuorumLook(t *testing.T) {
	g := NewWithT(t)
	q := look(&etcd.Health{Members: []etcd.Member{{Answers: true}, {Answers: true}, {}, {Learner: true, Answers: true}}}, nil)
	g.Expect(q.Voters).To(Equal(3))
	g.Expect(q.Answering).To(Equal(2))
	g.Expect(look(nil, errors.New("no member responds")).Spare()).To(BeNumerically("<", 0))
}
