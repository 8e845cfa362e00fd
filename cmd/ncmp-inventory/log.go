package main

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// A problem that hits every record must not give a line for each: of lines with
// one message the first logFirst in logTick go out, the rest are counted.
const (
	logTick  = 30 * time.Second
	logFirst = 10
)

// newLogger logs to w, as JSON unless a person reads it there.
func newLogger(c config.Log, w io.Writer, reg prometheus.Registerer) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevelAt(logLevel(c.Level))
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if c.Format == "console" || c.Format == "auto" && isTerminal(w) {
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		enc.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	dropped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ncmp_inventory_log_lines_dropped_total",
		Help: "Log lines left out because the same message was logged too often.",
	})
	reg.MustRegister(dropped)
	core := zapcore.NewSamplerWithOptions(
		zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level), logTick, logFirst, 0,
		zapcore.SamplerHook(func(_ zapcore.Entry, d zapcore.SamplingDecision) {
			if d&zapcore.LogDropped != 0 {
				dropped.Inc()
			}
		}))
	return zap.New(core), level
}

// logLevel knows the names that the configuration lets through.
func logLevel(name string) zapcore.Level {
	l, err := zapcore.ParseLevel(name)
	if err != nil {
		return zapcore.InfoLevel
	}
	return l
}
