// One scrape as kafka_exporter (danielqsj) makes it: the requests of its collector, in its order and with its settings, and what it exports.
package main

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

type partitionMetrics struct {
	Leader          int32   `json:"leader"`
	CurrentOffset   int64   `json:"current_offset"`
	OldestOffset    int64   `json:"oldest_offset"`
	Replicas        []int32 `json:"replicas"`
	InSyncReplicas  []int32 `json:"in_sync_replicas"`
	IsWritable      bool    `json:"is_writable"`
	IsPreferred     bool    `json:"is_preferred"`
	UnderReplicated bool    `json:"under_replicated"`
}

type consumedPartition struct {
	Offset int64 `json:"offset"`
	Lag    int64 `json:"lag"`
}

type groupMetrics struct {
	Members    int                                     `json:"members"`
	State      string                                  `json:"state"`
	Assigned   map[string][]int32                      `json:"assigned"`
	Partitions map[string]map[int32]*consumedPartition `json:"partitions"`
}

func (p *program) scrape(asked command, told answer) error {
	settings := sarama.NewConfig()
	settings.ClientID = "kafka_exporter"
	settings.Metadata.AllowAutoTopicCreation = false
	version, err := sarama.ParseKafkaVersion(asked.Version)
	if err != nil {
		return err
	}
	settings.Version = version
	client, err := sarama.NewClient(p.brokers, secure(settings))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.RefreshMetadata(); err != nil {
		return err
	}
	names, err := client.Topics()
	if err != nil {
		return err
	}
	topics := map[string]map[int32]*partitionMetrics{}
	for _, name := range names {
		if topics[name], err = scrapeTopic(client, name); err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
	}
	groups := map[string]*groupMetrics{}
	brokers := map[int32]string{}
	for _, broker := range client.Brokers() {
		brokers[broker.ID()] = broker.Addr()
		if err := scrapeGroups(client, broker, topics, groups); err != nil {
			return fmt.Errorf("groups of broker %d: %w", broker.ID(), err)
		}
	}
	told["brokers"], told["topics"], told["groups"] = brokers, topics, groups
	return nil
}

func scrapeTopic(client sarama.Client, name string) (map[int32]*partitionMetrics, error) {
	partitions, err := client.Partitions(name)
	if err != nil {
		return nil, err
	}
	writable, err := client.WritablePartitions(name)
	if err != nil {
		return nil, err
	}
	found := map[int32]*partitionMetrics{}
	for _, partition := range partitions {
		each := &partitionMetrics{}
		found[partition] = each
		leader, err := client.Leader(name, partition)
		if err != nil {
			return nil, err
		}
		each.Leader = leader.ID()
		if each.CurrentOffset, err = client.GetOffset(name, partition, sarama.OffsetNewest); err != nil {
			return nil, err
		}
		if each.OldestOffset, err = client.GetOffset(name, partition, sarama.OffsetOldest); err != nil {
			return nil, err
		}
		if each.Replicas, err = client.Replicas(name, partition); err != nil {
			return nil, err
		}
		if each.InSyncReplicas, err = client.InSyncReplicas(name, partition); err != nil {
			return nil, err
		}
		each.IsPreferred = len(each.Replicas) > 0 && each.Replicas[0] == each.Leader
		each.UnderReplicated = len(each.InSyncReplicas) < len(each.Replicas)
	}
	for _, partition := range writable {
		found[partition].IsWritable = true
	}
	return found, nil
}

// scrapeGroups asks one broker for the groups that it coordinates.
func scrapeGroups(
	client sarama.Client, broker *sarama.Broker, topics map[string]map[int32]*partitionMetrics, found map[string]*groupMetrics,
) error {
	if err := broker.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return err
	}
	listed, err := broker.ListGroups(&sarama.ListGroupsRequest{})
	if err != nil {
		return err
	}
	names := []string{}
	for name := range listed.Groups {
		names = append(names, name)
	}
	described, err := broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: names})
	if err != nil {
		return err
	}
	for _, group := range described.Groups {
		if !errors.Is(group.Err, sarama.ErrNoError) {
			return group.Err
		}
		metrics, err := scrapeGroup(broker, group, topics)
		if err != nil {
			return err
		}
		found[group.GroupId] = metrics
	}
	return nil
}

func scrapeGroup(
	broker *sarama.Broker, group *sarama.GroupDescription, topics map[string]map[int32]*partitionMetrics,
) (*groupMetrics, error) {
	metrics := &groupMetrics{
		Members: len(group.Members), State: group.State, Assigned: map[string][]int32{},
		Partitions: map[string]map[int32]*consumedPartition{},
	}
	request := sarama.OffsetFetchRequest{ConsumerGroup: group.GroupId, Version: 1}
	for name, partitions := range topics { // its option offset.show-all, the default
		for partition := range partitions {
			request.AddPartition(name, partition)
		}
	}
	for _, member := range group.Members {
		assignment, err := member.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		if assignment != nil {
			for name, partitions := range assignment.Topics {
				metrics.Assigned[name] = append(metrics.Assigned[name], partitions...)
			}
		}
	}
	fetched, err := broker.FetchOffset(&request)
	if err != nil {
		return nil, err
	}
	for name, blocks := range fetched.Blocks {
		for partition, block := range blocks {
			if !errors.Is(block.Err, sarama.ErrNoError) {
				return nil, block.Err
			}
			if block.Offset == -1 {
				continue
			}
			if metrics.Partitions[name] == nil {
				metrics.Partitions[name] = map[int32]*consumedPartition{}
			}
			lag := topics[name][partition].CurrentOffset - block.Offset
			metrics.Partitions[name][partition] = &consumedPartition{Offset: block.Offset, Lag: lag}
		}
	}
	return metrics, nil
}
