"""What happens when a visitor presses a button: plain functions and generators. Know nothing of Gradio."""
