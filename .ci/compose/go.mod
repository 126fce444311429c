module github.com/asynq-throttle/asynq-throttle/.ci/compose

go 1.25.0

require gopkg.in/yaml.v3 v3.0.1
