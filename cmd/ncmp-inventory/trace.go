package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

const (
	// spanQueue is how many spans wait to be exported; more are dropped, for a
	// collector that is away must not hold up or fill the worker.
	spanQueue = 16384
	// spanBatch is how many go in one request.
	spanBatch = 1024
	// lastSpans is what a stopping worker waits for the collector.
	lastSpans = time.Second
)

// tracing continues the traces of input events whose sampled flag is set, and
// no others:
//
//	producer's span ◄─ parent ─ create (the id in the output's traceparent)
//	       ▲                      │ link            ▲
//	       └───── link ──────── apply               └─ link ─ publish
//
// A batch has many inputs, so apply is the root of a trace of its own, linked
// with all of them; so is publish, which may be another worker's.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	group    string
}

// startTracing exports to an OTLP endpoint over HTTP until stop is called.
func startTracing(ctx context.Context, endpoint, instance, group string, log *zap.Logger) (*tracing, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("trace.otlp-endpoint: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1 // a batch's size bounds them
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&toldExporter{SpanExporter: exporter, log: log}, sdktrace.WithMaxQueueSize(spanQueue), sdktrace.WithMaxExportBatchSize(spanBatch)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithIDGenerator(spanIDs{}),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL,
			semconv.ServiceName("ncmp-inventory"), semconv.ServiceInstanceID(instance), semconv.ServiceVersion(version()))),
	)
	return &tracing{provider: p, tracer: p.Tracer("ncmp-inventory"), group: group}, nil
}

// stop exports what waits, for a moment.
func (t *tracing) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the exporter has told what is wrong
}

// toldExporter tells once that spans are lost, and once that they are not any more.
type toldExporter struct {
	sdktrace.SpanExporter
	log     *zap.Logger
	failing bool
}

// ExportSpans implements sdktrace.SpanExporter; it is not called concurrently.
func (e *toldExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("traces are not exported; what cannot be is dropped", zap.Error(err))
	case err == nil && e.failing:
		e.log.Info("traces are exported again")
	}
	e.failing = err != nil
	return nil // else the library would tell it on standard error
}

// spanContext is the remote span that a traceparent names, and whether its
// trace is sampled.
func spanContext(parent, state string) (sc trace.SpanContext, sampled bool) {
	if parent == "" {
		return sc, false
	}
	carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
	sc = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	return sc, sc.IsSampled()
}

// sampledInputs are links to the spans that sent a batch's events.
func sampledInputs(b *inventory.Batch) []trace.Link {
	var links []trace.Link
	for i := range b.Records {
		for j := range b.Records[i].Events {
			ev := &b.Records[i].Events[j]
			if sc, ok := spanContext(ev.TraceParent, ev.TraceState); ok {
				links = append(links, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
					semconv.MessagingMessageID(ev.ID), semconv.MessagingKafkaOffset(int(b.Records[i].Offset)),
				}})
			}
		}
	}
	return links
}

// tracedApplier traces batches that hold a sampled event. All others go to
// plain as they are.
type tracedApplier struct {
	*tracing
	plain   *inventory.Registrar
	ledger  inventory.Ledger
	encoder inventory.Encoder
	config  inventory.RegistrarConfig
	topics  map[inventory.MessageKind]string
}

// Apply implements consumer.Applier.
func (a *tracedApplier) Apply(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
	links := sampledInputs(b)
	if len(links) == 0 {
		return a.plain.Apply(ctx, b)
	}
	ctx, span := a.tracer.Start(ctx, "apply "+b.Topic, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("apply"),
			semconv.MessagingConsumerGroupName(a.group), semconv.MessagingDestinationName(b.Topic),
			semconv.MessagingDestinationPartitionID(strconv.Itoa(int(b.Index))), semconv.MessagingKafkaOffset(int(b.First)),
			semconv.MessagingBatchMessageCount(len(b.Records))))
	defer span.End()
	told := &toldMessages{Ledger: a.ledger, Encoder: a.encoder}
	told.committed = func() { a.created(ctx, span.SpanContext(), told.messages) }
	rc, err := inventory.NewRegistrar(told, told, a.config).Apply(ctx, b)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "not applied; it is tried again")
		return rc, err
	}
	span.SetAttributes(attribute.Int("ncmp_inventory.fragments", rc.Fragments),
		attribute.Float64("ncmp_inventory.read_seconds", rc.Read.Seconds()), attribute.Float64("ncmp_inventory.plan_seconds", rc.Plan.Seconds()),
		attribute.Float64("ncmp_inventory.write_seconds", rc.Write.Seconds()), attribute.Float64("ncmp_inventory.commit_seconds", rc.Commit.Seconds()))
	return rc, nil
}

// created makes the spans that the messages' own traceparents name: children of
// the producers' spans, from planning to commit.
func (a *tracedApplier) created(ctx context.Context, batch trace.SpanContext, messages []toldMessage) {
	for _, m := range messages {
		parent := trace.ContextWithRemoteSpanContext(withSpanID(ctx, lcm.SpanID(m.id)), m.parent)
		topic := a.topics[m.kind]
		_, span := a.tracer.Start(parent, "create "+topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(m.at),
			trace.WithLinks(trace.Link{SpanContext: batch}),
			trace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeCreate, semconv.MessagingOperationName("create"),
				semconv.MessagingDestinationName(topic), semconv.MessagingMessageID(m.id.String())))
		span.End()
	}
}

// toldMessages is ledger and encoder of one batch: it remembers which messages
// with a sampled cause each transaction made. It is used by one goroutine.
type toldMessages struct {
	inventory.Ledger
	inventory.Encoder
	messages  []toldMessage
	committed func()
}

type toldMessage struct {
	kind   inventory.MessageKind
	id     uuid.UUID
	parent trace.SpanContext
	at     time.Time
}

// Transact implements inventory.Ledger.
func (t *toldMessages) Transact(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (inventory.Receipt, error) {
	t.messages = t.messages[:0]
	rc, err := t.Ledger.Transact(ctx, b, need, func(s *inventory.Snapshot) (*inventory.Plan, error) {
		t.messages = t.messages[:0] // of an attempt that failed
		p, err := decide(s)
		if err == nil {
			t.keep(p.Messages)
		}
		return p, err
	})
	if err == nil {
		t.committed()
	}
	return rc, err
}

// keep forgets messages that the plan took back, because one of their entry did
// not fit its topic.
func (t *toldMessages) keep(plan []inventory.Message) {
	kept := make(map[trace.SpanID]bool, len(plan))
	for i := range plan {
		sc, _ := spanContext(lcm.TraceOf(plan[i].Headers))
		kept[sc.SpanID()] = true
	}
	t.messages = slices.DeleteFunc(t.messages, func(m toldMessage) bool { return !kept[lcm.SpanID(m.id)] })
}

func (t *toldMessages) tell(kind inventory.MessageKind, id uuid.UUID, cause *inventory.Event, at time.Time) {
	if cause == nil {
		return
	}
	if sc, ok := spanContext(cause.TraceParent, cause.TraceState); ok {
		t.messages = append(t.messages, toldMessage{kind, id, sc, at})
	}
}

// LCMEvent implements inventory.Encoder.
func (t *toldMessages) LCMEvent(e *inventory.Transition) inventory.Message {
	t.tell(inventory.LCMEvent, e.EventID, e.Cause, e.At)
	return t.Encoder.LCMEvent(e)
}

// InventoryEvent implements inventory.Encoder.
func (t *toldMessages) InventoryEvent(e *inventory.TrustChange) inventory.Message {
	t.tell(inventory.InventoryEvent, e.EventID, e.Cause, e.At)
	return t.Encoder.InventoryEvent(e)
}

// Outcome implements inventory.Encoder.
func (t *toldMessages) Outcome(e *inventory.Outcome) inventory.Message {
	t.tell(inventory.OutcomeEvent, e.EventID, e.Cause, e.At)
	return t.Encoder.Outcome(e)
}

// published makes the span of one acknowledged batch of an output partition. It
// is lcm.RelayConfig's Published.
func (t *tracing) published(topic string, partition int, rows []inventory.OutboxRow, began time.Time) {
	var links []trace.Link
	for i := range rows {
		if sc, ok := spanContext(lcm.TraceOf(rows[i].Headers)); ok {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	if len(links) == 0 {
		return
	}
	_, span := t.tracer.Start(context.Background(), "publish "+topic, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began), trace.WithLinks(links...),
		trace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(partition)),
			semconv.MessagingBatchMessageCount(len(rows))))
	span.End()
}

// spanIDs gives a span the id that its context asks for: that of an output event
// stands in its traceparent already.
type spanIDs struct{}

type spanIDKey struct{}

func withSpanID(ctx context.Context, id [8]byte) context.Context {
	return context.WithValue(ctx, spanIDKey{}, trace.SpanID(id))
}

// NewIDs implements sdktrace.IDGenerator.
func (g spanIDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if asked, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return asked
	}
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
