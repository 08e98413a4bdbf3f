// A member of a consumer group by franz-go, which asks for the consumer protocol (KIP-848): a JSON line per command on standard input,
// one per answer on standard output. Between two polls its heartbeats go on.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type command struct {
	Op        string `json:"op"`
	TimeoutMs int64  `json:"timeout_ms"`
}

type record struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"`
}

type answer struct {
	Records    []record           `json:"records,omitempty"`
	Assignment map[string][]int32 `json:"assignment,omitempty"`
	Epoch      int32              `json:"epoch"`
	Error      string             `json:"error,omitempty"`
}

// member is the client and what the callbacks said that it owns.
type member struct {
	client *kgo.Client
	mutex  sync.Mutex
	owned  map[string]map[int32]bool
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: franzgo BOOTSTRAP GROUP TOPIC")
		os.Exit(2)
	}
	m := &member{owned: map[string]map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, false) }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.client = client
	m.serve()
	client.Close()
}

// serve answers until standard input ends; then the member leaves.
func (m *member) serve() {
	answers := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var asked command
		var told answer
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			told.Error = err.Error()
		} else if err := m.run(asked, &told); err != nil {
			told.Error = err.Error()
		}
		if err := answers.Encode(told); err != nil {
			return
		}
	}
}

func (m *member) run(asked command, told *answer) error {
	switch asked.Op {
	case "poll":
		deadline, cancel := context.WithTimeout(context.Background(), time.Duration(asked.TimeoutMs)*time.Millisecond)
		defer cancel()
		m.client.PollFetches(deadline).EachRecord(func(r *kgo.Record) {
			told.Records = append(told.Records, record{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value})
		})
		told.Assignment = m.assignment()
		_, told.Epoch = m.client.GroupMetadata()
		return nil
	case "commit":
		return m.commit(10 * time.Second)
	}
	return fmt.Errorf("unknown command %q", asked.Op)
}

// commit tries again where no broker could be reached: franz-go gives a commit up when it has asked two dead addresses in a row for
// the coordinator (with one broker dead, its discovered one and the seed of the same address).
func (m *member) commit(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := m.client.CommitUncommittedOffsets(context.Background())
		var refused *net.OpError
		if err == nil || !errors.As(err, &refused) || refused.Op != "dial" || time.Now().After(deadline) {
			return err
		}
	}
}

func (m *member) note(partitions map[string][]int32, areOwned bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, numbers := range partitions {
		if m.owned[topic] == nil {
			m.owned[topic] = map[int32]bool{}
		}
		for _, number := range numbers {
			if areOwned {
				m.owned[topic][number] = true
			} else {
				delete(m.owned[topic], number)
			}
		}
	}
}

func (m *member) assignment() map[string][]int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	assignment := map[string][]int32{}
	for topic, numbers := range m.owned {
		for number := range numbers {
			assignment[topic] = append(assignment[topic], number)
		}
	}
	return assignment
}
