// Package consumer turns Kafka records into ordered batches of decoded events.
package consumer
