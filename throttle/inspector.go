package throttle

// Inspector shows how a throttle stands and changes it at run time; it decides for no job. A
// program that has the throttle calls Throttle.Inspector, any other program Attach. Most
// callers want:
//
//   - Usage and UsageAll, for the units that count under each limit;
//   - Lines and Lanes, for what waits and under which scope key;
//   - Explain and ExplainID, for one job; Forecast, for jobs that do not exist yet;
//   - Pause, SetLimits and SetMode, to change what is in force, and Settings and Changes to see it;
//   - Check and Processes, for whether Redis and the processes are fit.
//
// An Inspector is safe for use by many goroutines and needs no closing.
type Inspector struct{ *setup }
